// stories_plots_friend: plots of the hero with a friend, a second child. See stories_tales.c, grammar.h.
//
// Lost and found, a birthday, a quarrel, a contest, a secret, bad weather, a new child, trading, a visit to a
// sick friend. Each ends in `finale_friend`, which says both names. stories_tales.c explains the remembered
// words.
//
// The invariant: when the finale comes, `hero`, `friend` and `place` have been chosen in every wording,
// because the finale writes them (grammar_write dies at a name that was never chosen). And each text has one
// derivation.
#include "data/stories/stories_tables.h"

const GrammarRule stories_plots_friend[] = {
    // ---- Lost and found ----
    {"lost",
     "[Time], [hero] [went] to the [place=location] with [hero.his] [a_thing]. [lost_how] [lost_cry] "
     "[lost_search] [lost_friend] [lost_found] [lost_thanks] [finale_friend]"},
    {"lost_how",
     "[Hero] laid it beside the [where=spot] to pick [fruit]."
     "|Near the [where=spot] it fell on [a] [junk_look] [junk]."
     "|While [hero] rested by the [where=spot], it slipped into the [tall] grass."},
    {"tall", "tall|wet|soft|yellow|green|deep|dry|cool"},
    {"lost_cry",
     "“Oh no! Where is my [thing]?” [cried] [hero] at [meal]."
     "|But soon the [thing] was gone. [Hero] [wept]."
     "|On the way back [hero] noticed that the [thing] was gone, and felt [upset]."},
    {"lost_search",
     "[Hero] looked under the [x=furniture], behind the [y=furniture] and in the [container]."
     "|In the [x=container] was [a] [junk_look] [junk], but no [thing]."
     "|[Hero] asked the [x=job], the [y=job] and even the [animal]."},
    {"lost_friend",
     "Then [friend=hero.other] came by. “I will help you look,” [friend] [said]."
     "|“When did you last see it?” [asked] [friend=hero.other]. “[Place.at] the [place],” said [hero]."},
    {"lost_found",
     "[Suddenly], [friend] pointed at the [where]. There lay the [look] [thing], next to [a] "
     "[animal_look] [animal]!"
     "|They searched [adverb] until [friend] saw the [thing] beside the [where], among the [flower]."
     "|[A] [animal_look] [beast=creature] sat beside the [where]. “It is guarding your [thing]!” "
     "[cried] [friend]. It [beast.moved] away."},
    {"lost_thanks",
     "“Thank you, [friend]!” [said] [hero], and gave [friend] [treat]."
     "|[Hero] [smiled]. “What would I do without you, [friend]?”"
     "|[Hero] was as [glad] as [a] [animal_look] [animal]."},

    // ---- A birthday present ----
    {"birthday",
     "[Time], [friend=hero.other] invited [hero] to a birthday party. "
     "[birthday_idea] [birthday_wrap] [birthday_party] [birthday_open] [finale_friend]"},
    {"birthday_idea",
     "At the [place=building] [hero] saw [a] [a_thing] for [number] coins, and carried [crop] for "
     "[a] [trait] [job] to earn them."
     "|[Hero] borrowed [x=material] and [y=material] from the [job] at the [place=building] and "
     "made [a] [a_thing]."
     "|[A] [trait] [job] at the [place=building] sold [hero] [a] [a_thing] for [treat]."},
    {"birthday_wrap",
     "[Hero] wrapped the [thing] in [x=colour] and [y=colour] paper."
     "|[Hero] tied [a] [colour] ribbon around the [thing] and hid it in [a] [junk_look] "
     "[container]."},
    {"birthday_party",
     "At the party there were [dish_taste] [dish], [drink] and [a] [sweet] with [number] candles."
     "|[Number] children ate [fruit] with [flavour] and played [x=pastime] and [y=pastime]."
     "|At the party [a] [trait] [job] told jokes about [dream]."},
    {"birthday_open",
     "“[A] [look] [thing]!” [cried] [friend]. “[birthday_joy]”"
     "|[Friend] unpacked the [thing] [adverb] and [smiled]. “[birthday_joy]”"},
    {"birthday_joy",
     "It is just what I wanted!"
     "|How did you know?"
     "|I will keep it forever!"
     "|Not even [a] [job] has [a] [thing] like this!"
     "|Now I have everything I need!"},

    // ---- A quarrel ----
    {"quarrel",
     "[Time], [hero] and [hero.his] friend [friend=hero.other] were playing [game=pastime] "
     "[at_place]. Near [a] [junk_look] [junk] they found [a] [a_thing]. [quarrel_fight] "
     "[quarrel_part] [quarrel_advice] [quarrel_sorry] [finale_friend]"},
    {"quarrel_fight",
     "“I saw it first!” [cried] [hero]. “No, the [thing] is mine!” [cried] [friend]."
     "|“Give me the [thing]!” [cried] [friend]. “Never!” [cried] [hero], and it fell into the [hole]."
     "|[Hero] wanted to keep the [thing], and [friend] wanted to sell it to the [job] for [number] "
     "coins."},
    {"quarrel_part",
     "[Hero] was [x=cross] and [friend] was [y=cross]."
     "|They were both so [cross] that they did not speak for [number] days."
     "|“I would rather play with [a] [animal_look] [animal]!” [said] [hero], and [went] away."},
    {"quarrel_advice",
     "But there was no fun in [game] alone, and [hero] felt [upset]."
     "|“[A] [thing] cannot talk to you,” [said] [hero.his] [relative]. “But [a] [trait] friend can.”"
     "|[Hero] sat on the [furniture] and [wept]."},
    {"quarrel_sorry",
     "The next [daytime] [hero] brought [friend] [treat]. “I am sorry. Let us share the [thing].”"
     "|“I am sorry,” [said] [friend] at last. “You take the [thing] on [x=weekday], and I take it on "
     "[y=weekday].”"
     "|So [hero] wrote [friend] [a] [looks.paper] letter: “The [look] [thing] is yours.” [Friend] "
     "came at once, with [treat]."},

    // ---- A contest ----
    {"competition",
     "[Time], there was a poster at the [building]: “Grand [game=contest]! First prize: [a] "
     "[a_thing]!” [competition_train] The [game] was held [at_place]. "
     "[competition_crowd] [competition_end] [finale_friend]"},
    {"competition_train",
     "[Hero] practiced [adverb] every [daypart], and so did [hero.his] friend [friend=hero.other]."
     "|“I will win that [thing],” [said] [hero]. “No, I will,” [said] [friend=hero.other], and "
     "[smiled]."
     "|[Hero] ate [dish_taste] [dish] to grow strong. [Hero.his] friend [friend=hero.other] ate "
     "[number] [vegetable]."},
    {"competition_crowd",
     "[Number] children took part, and even the [job] came."
     "|The [x=job], the [y=job] and a band with [a] [instrument] were there."
     "|The judge was [a] [trait] [job] in [a] [looks.clothing] [clothing]."},
    {"competition_end",
     "But [friend] fell over [a] [junk_look] [junk] and hurt [friend.his] [body]. [Hero] stopped to "
     "help, and they came in [ordinal], hand in hand."
     "|[Friend] won the [look] [thing]. [Hero] was [upset], but [hero] shook [friend.his] hand and "
     "gave [friend] [treat]."
     "|[Hero] won by a hair. “The [look] [thing] is mine!” [hero] [cried]. [Friend] [smiled] and "
     "bought [hero] [treat]."},

    // ---- A secret ----
    {"secret",
     "[Time], [hero] found [a] [junk_look] [container] behind the [furniture]. Inside lay [a] "
     "[a_thing] and a note: [note] [secret_tell] [secret_meet] [secret_reward] [finale_friend]"},
    {"note",
     "“Take me to the [oak=tree] near the [place=location].”"
     "|“Look for the [oak=tree] by the [place=location].”"},
    {"secret_tell",
     "“Can you keep a secret?” [hero] asked [friend=hero.other]. “I promise,” [friend] [said] "
     "[adverb]."
     "|Only [friend=hero.other] was allowed to see the [look] [thing]. “How [exciting]!” [friend] "
     "[cried]."},
    {"exciting", "exciting|mysterious|strange|thrilling|curious|wonderful|odd|splendid"},
    {"secret_meet",
     "Under the [oak] sat [elder=grown_up], [a] [trait] [job]. “I lost that [thing] [number] years "
     "ago!”"
     "|At the [oak] they met [elder=grown_up], [a] [trait] [job]. “My [relative] made that [thing],” "
     "[elder.he] [said]."},
    {"secret_reward",
     "As a reward [elder] taught them to [x=skill] and to [y=skill]."
     "|[Elder] was so [glad] that the children got [treat]."
     "|Then [elder] told them about [x=dream] and [y=dream] until [meal]."},

    // ---- Bad weather ----
    {"spoiled",
     "[Hero] and [friend=hero.other] had planned [a] [trip=outing] [at_place]. "
     "[spoiled_pack] [spoiled_storm] [spoiled_idea] [spoiled_play] [spoiled_over] [finale_friend]"},
    {"spoiled_pack",
     "They packed [dish_taste] [snack=dish], [drink] and [a] [a_thing]."
     "|[Hero] made [dish_taste] [snack=dish], and [friend] brought [a] [a_thing]."},
    {"spoiled_storm",
     "But on [weekday] there was [a] [bad=storm]. “Our [trip] is ruined!” [cried] [friend], and "
     "[hero] [wept]."
     "|But [weekday] brought [a] [bad=storm]. “No [place] today,” [said] [hero]. [Friend] was [upset]."},
    {"spoiled_idea",
     "Then they hung [a] [colour] blanket over the [furniture] and called it the [place]."
     "|Then the [x=furniture] became [a] [vehicle], and the [y=furniture] became [a] [animal]."
     "|“Who needs [a] [trip]?” [asked] [friend]. “We have the [thing].”"},
    {"spoiled_play",
     "They ate the [snack] on the floor and played [pastime]."
     "|With the [look] [thing] they played [x=pastime] and [y=pastime] until [meal]."
     "|Over the [snack] [hero] told [friend] about [x=dream] and [y=dream]."},
    {"spoiled_over",
     "[Suddenly], the [bad] was over."
     "|“This was the best [trip] in [country],” [said] [friend]."
     "|The next [weekday] was [hot], and they had the [trip] after all."},

    // ---- A new child ----
    {"newcomer",
     "[Time], a new child came to the [building]. [newcomer_who] "
     "[newcomer_alone] [newcomer_ask] [newcomer_show] [newcomer_play] [finale_friend]"},
    {"newcomer_who",
     "It was [friend=hero.other] from [land=country]."
     "|“This is [friend=hero.other] from [land=country],” [said] [a] [trait] [job]."
     "|[Friend=hero.other] was from [land=country] and lived in [a] [dwelling_look] [dwelling]."},
    {"newcomer_alone",
     "[Friend] sat alone beside the [spot] and looked [upset]."
     "|“Why is [friend] so [upset]?” [asked] the [job]."
     "|[Friend] wore [a] [looks.clothing] [clothing] and did not say a word."},
    {"newcomer_ask",
     "“Do you like [x=hobby]?” [asked] [hero]. “No, but I like [y=hobby],” [said] [friend] [adverb]."
     "|[Hero] gave [friend] [treat]. “In [land] we eat [dish_taste] [dish],” [said] [friend]."
     "|“What is it like in [land]?” [asked] [hero]. “It is [weather], and everybody can [skill],” "
     "[said] [friend]."},
    {"newcomer_show",
     "[Hero] showed [friend] the [place=location], and [friend] showed [hero] [a] [a_thing] "
     "from [land]."
     "|Together they [went] to the [place=location] and watched [a] [animal_look] [animal]."
     "|They built [a] [vehicle] out of [x=material] and [y=material] [at_place]."},
    {"newcomer_play",
     "They played [x=pastime] and [y=pastime] until [meal]."
     "|[Friend] learned [number] new words, and [hero] learned to [skill]."
     "|Soon [friend] was as [glad] as [a] [animal]."},

    // ---- Trading ----
    {"trade",
     "[Time], [hero] took [hero.his] [a_thing] to the [place=building] to trade it. "
     "[trade_offer] [trade_friend] [trade_back] [trade_end] [finale_friend]"},
    {"trade_offer",
     "[A] [x=job] offered [number] coins for it, and [a] [trait] [y=job] offered [treat]."
     "|“I will give you [a] [animal_look] [animal] for that [thing],” [said] [a] [trait] [job]."
     "|Nobody wanted [a] [thing], not even the [x=job] and the [y=job]."},
    {"trade_friend",
     "Then [hero] saw [friend=hero.other], who was [upset] because [friend.his] own [thing] was "
     "broken. “Take mine,” [said] [hero]."
     "|Beside the [spot] stood [friend=hero.other]. “I only have [number] [fruit],” [friend] "
     "[said]. “The [thing] is yours,” said [hero]."},
    {"trade_back",
     "On [weekday] [friend] came to the [house] with [a] [a_gift]."
     "|The next [daytime], [a] [a_gift] and [a] [sweet] lay on the doorstep, from [friend]."},
    {"trade_end",
     "[Hero] would not give the [gift] away for [riches]."
     "|The [gift] was much better than [number] coins."
     "|[Hero] put the [gift] on the [furniture] and was [glad]."},

    // ---- A visit to a sick friend ----
    {"visit",
     "[Time], [friend=hero.other] did not come to the [place=building]. “[Friend] has [a] "
     "[ill=illness],” [said] [elder=grown_up], the [job]. [visit_pack] [visit_talk] "
     "[visit_cheer] [visit_well] [finale_friend]"},
    {"visit_pack",
     "[Hero] filled [a] [container] with [fruit], [drink] and [a] [a_thing]."
     "|[Hero] picked [flower] and [went] to see [friend] with [a] [a_thing]."},
    {"visit_talk",
     "“How is your [ill]?” [asked] [hero] [adverb]."
     "|[Friend] lay under [a] [looks.clothing] blanket and drank [drink_taste] [drink]."
     "|“I brought you [a] [thing] against the [ill],” [said] [hero]. [Friend] [smiled]."},
    {"visit_cheer",
     "They played [pastime], and [hero] talked about [x=dream] and [y=dream]."
     "|[Hero] danced like [a] [animal_look] [animal], until the [furniture] shook."
     "|They ate [dish_taste] [dish] and looked at the [look] [thing]."},
    {"visit_well",
     "After [number] days the [ill] was gone, and [friend] could [skill] again."
     "|“Your [thing] cured me,” [said] [friend] on [weekday]."
     "|[Suddenly], the [ill] was over. “[Virtue] is the best medicine,” [said] [elder]."},
};

const size_t stories_n_plots_friend = sizeof stories_plots_friend / sizeof *stories_plots_friend;
