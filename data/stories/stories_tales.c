// stories_tales: where a tale starts, and what all tales share. See grammar.h for the notation.
//
// A tale is an opening that names the hero, a refrain about the hero, a habit and one of the plots. A
// plot is a sequence of beats (what happens, what is said, how it ends), each with a few wordings. The
// wordings contain many word lists and many words remembered from before: who the hero and the friend
// are, what was lost, where it lay. Remembered words are what a model has to copy from its context.
//
//   hero, friend    children; the friend is of the other sex, so that "his" and "her" always say whose it is
//   elder, kin, who a grown-up with a name, a relative, a stranger with a trade
//   look, thing     the object of the tale and its adjective; gift: a second object
//   house, place, where   where the hero lives, where the tale happens, the exact spot
//   beast, pal, day, ...  as the plot needs; x, y, z: for a sentence or two
//
// The invariant: no two derivations give the same text, so that the entropy is exact. The wordings of a beat differ in
// their fixed words, and an optional beat is followed by words that differ from its own. The test reads texts back and
// counts derivations.
//
// Names are often used where ordinary English has "he" or "she", because a name is a word to copy and a pronoun is
// only a choice of two.
#include "data/stories/stories_tables.h"

const GrammarRule stories_tales[] = {
    {"tale", "[opening] [hero_refrain] [habit] [plot]"},
    {"plot", "[lost]|[birthday]|[quarrel]|[journey]|[rescue]|[competition]|[secret]|[lesson]|"
             "[spoiled]|[stranger]|[kitchen]|[planting]|[newcomer]|[night]|[trade]|[visit]|[broken]|"
             "[stray]"},

    // ---- Sentences that every plot may use ----
    {"kid", "girl named [hero=girl]|boy named [hero=boy]"},
    {"opening",
     "Once upon a time there was [a] [trait] [kid]. [Hero] lived in [a] [dwelling_look] "
     "[house=dwelling] near the [place_at_home]."
     "|[Hero=name] was [a] [trait] [hero.child] who lived with [hero.his] [kindred] in [a] "
     "[dwelling_look] [house=dwelling] by the [shore]."
     "|In [a] [town_look] [town] in [country] lived [a] [trait] [kid]. [Hero] had [a] [dwelling_look] "
     "[house=dwelling] next to the [building]."
     "|Long ago, at the edge of [a] [town_look] [inland], lived [a] [trait] [kid]. [Hero] had [a] "
     "[dwelling_look] [house=dwelling]."
     "|[Hero=name] lived in [a] [dwelling_look] [house=dwelling] with [a] [animal_look] [pet] and [a] "
     "[animal_look] [livestock]."
     "|Nobody in the [town] was as [trait] as [hero=name], the [hero.child] from the [dwelling_look] "
     "[house=dwelling] behind the [building]."},
    {"place_at_home", "[inland]|[shore]|[building]"},
    {"habit",
     "[Hero] loved [x=hobby] and [y=hobby]."
     "|Every [weekday] [hero] had [dish_taste] [dish] for [meal]."
     "|At night [hero] dreamed of [x=dream] and [y=dream]."
     "|[Hero] always wore [a] [looks.clothing] [clothing] and carried [a] [junk_look] [junk]."
     "|[Hero]'s favorite food was [dish] with [x=flavour] and [y=flavour]."
     "|[Hero] wanted to be [a] [x=job] or [a] [trait] [y=job]."
     "|[Hero]'s [relative] was [a] [job] and loved [hobby]."},
    {"time", "one [weather] [daytime]|on the [ordinal] day of [month]|the day after [festival]|"
             "early one [season] morning|one [weekday] after [meal]|"
             "on [a] [cold] [weekday] in [cold_month]|on [a] [hot] [weekday] in [hot_month]"},
    {"daytime", "morning|afternoon|day|evening|[weekday]"},
    {"at_place", "in the [place=inland]|by the [place=shore]|on the [place=height]|"
                 "at the [place=building]"},
    {"a_thing",
     "[look=looks.toy] [thing=toy]"
     "|[look=looks.tool] [thing=tool]"
     "|[look=looks.tool] [thing=gadget]"
     "|[look=looks.clothing] [thing=clothing]"
     "|[look=looks.instrument] [thing=instrument]"
     "|[look=looks.keepsake] [thing=keepsake]"
     "|[look=looks.paper] [thing=paper]"
     "|[look=looks.ware] [thing=ware]"},
    {"a_gift", "[looks.toy] [gift=toy]|[looks.clothing] [gift=clothing]|"
               "[looks.instrument] [gift=instrument]|[looks.keepsake] [gift=keepsake]"},
    {"a_tool", "[look=looks.tool] [thing=tool]"},
    {"a_ware", "[look=looks.ware] [thing=vessel]"},
    {"treat", "[a] [sweet_taste] [sweet]|a bag of [fruit_taste] [fruit]|a bowl of [dish_taste] [dish]|"
              "a cup of [drink_taste] [drink]"},
    {"moral",
     "And so [hero] learned that [virtue] is worth more than [riches]."
     "|“[Virtue] is better than [riches],” thought [hero]."
     "|From then on, [hero] never forgot that [x=virtue] and [y=virtue] go together."
     "|“With [virtue] you do not need [riches],” said [hero.his] [relative], and [hero] [smiled]."},
    {"end_night",
     "That night [hero] lay in the [house] and dreamed of [x=dream] and [y=dream]."
     "|[Hero] told [hero.his] [relative] the whole story over [a] [colour] plate of [dish]."
     "|Back in the [house], [hero] drank [drink] and slept [sleepily] until [meal]."
     "|[Hero] went home to the [house] with a pocket full of [fruit], as [glad] as [a] [animal]."
     "|The [house] had never felt so [cozy] to [hero]."},
    {"cozy", "cozy|warm|safe|bright|cheerful|comfortable|peaceful|homely"},
    {"end_friend",
     "From that day on, [hero] and [friend] met [place.at] the [place] every [weekday]."
     "|[Hero] and [friend] have been best friends ever since, like [a] [x=animal] and [a] [y=animal]."
     "|To this day [hero] and [friend] tell the story to every [job] in the [town]."
     "|“You are a true friend, [hero],” [said] [friend]. “And you are the most [trait] [friend.child] "
     "I know.”"
     "|Then [hero] and [friend] shared [treat] and talked about [dream]."},
    {"finale", "[end_refrain] [end_night]\n|[end_refrain] [moral]\n"},
    {"finale_friend", "[friend_refrain] [end_friend]\n|[friend_refrain] [moral]\n"},
};

const size_t stories_n_tales = sizeof stories_tales / sizeof *stories_tales;
