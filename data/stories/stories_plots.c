// stories_plots: the plots of the tales. See stories_tales.c, which explains the remembered words, and grammar.h.
//
// With a friend, a second child: lost and found, a birthday, a quarrel, a contest, a secret, bad weather, a new child,
// trading, a visit to a sick friend. Each ends in `finale_friend`, which says both names.
//
// With grown-ups and animals: a journey, a rescue, learning a skill, lost in the wild, in the kitchen, a garden, a
// noise in the night, something broken, a stray animal. Each ends in `finale`, about the hero alone, except the last,
// which has endings of its own about the hero and the animal.
//
// The invariant: a remembered word that is written (`hero`, `friend` and `place` in the finale; `kin`, `pal`, `beast`)
// has been chosen in every wording of the beats before it (grammar_write dies at a name that was never chosen). And
// each text has one derivation.
#include "data/stories/stories.h"

const GrammarRule stories_plots[] = {
    // ==== The hero and a friend ====

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

    // ==== The hero, grown-ups and animals ====

    // ---- A journey ----
    {"journey",
     "[Time], [hero] and [hero.his] [kin=relative] took [a] [vehicle] to the [place=location] in "
     "[land=country]. [journey_pack] [journey_sights] "
     "[journey_stop] [journey_there] [journey_home] [finale]"},
    {"journey_pack",
     "They packed [x=fruit], [y=fruit] and [a] [looks.clothing] [clothing]."
     "|In the [container] they had [dish_taste] [dish], [drink] and [a] [looks.paper] [paper]."
     "|“Do not forget your [clothing]!” [said] [hero.his] [kin]. “It is [weather] in [land].”"},
    {"journey_sights",
     "On the way they saw [a] [animal_look] [x=animal] and [a] [animal_look] [y=animal]."
     "|They passed [number] [dwelling_look] houses, the [x=building] and the [y=building]."
     "|They sang songs about [x=dream] and [y=dream]."},
    {"journey_stop",
     "[Suddenly], [a] [storm] began, and they waited in [a] [dwelling_look] [dwelling] with [a] "
     "[trait] [job]."
     "|At the [spot] [a] [animal_look] [x=livestock] was in the way. It [x.moved] off when [hero] "
     "gave it [vegetable]."
     "|“Are we there yet?” [asked] [hero] [number] times."},
    {"journey_there",
     "[Place.at] the [place], [a] [trait] [job] showed them how to [skill] and gave [hero] [a] "
     "[a_thing]."
     "|Everything there was [beautiful], and [hero] found [a] [a_thing] under [a] [tree]."
     "|[Hero] bought [a] [a_thing] there for [number] coins and some [fruit]."},
    {"beautiful", "beautiful|wonderful|magnificent|strange|peaceful|exciting|colorful|enormous|"
                  "mysterious|romantic"},
    {"journey_home",
     "Now the [thing] lies beside the [furniture] and reminds [hero] of the [place]."
     "|“Next [season] I want to go back to [land],” [said] [hero], holding the [look] [thing] "
     "[adverb]."},

    // ---- A rescue ----
    {"rescue",
     "[Time], [hero] heard a strange sound [at_place]. [rescue_find] [rescue_talk] "
     "[rescue_elder] [rescue_free] [rescue_after] [finale]"},
    {"rescue_find",
     "[A] [animal_look] [beast=small_animal] sat in the [hole] and could not get out."
     "|Near the [spot], [a] [animal_look] [beast=four_legs] was caught in [some_trap]."
     "|Beside the [spot] lay [a] [animal_look] [beast=livestock] that had hurt its [body] on [a] "
     "[junk_look] [junk]."},
    {"some_trap", "a net|a rope|a fence|some wire|a thorn bush|a trap|the mud|an old tire|"
                  "a hollow log|the ice"},
    {"rescue_talk",
     "“Do not be [scared], little [beast],” [said] [hero], and pulled [adverb]."
     "|“Poor [beast]!” [cried] [hero], and [went] to the [building] for help."
     "|The [beast] gave [a] [weak] [beast.noise], and [hero] felt [upset]."},
    {"scared", "afraid|frightened|scared|sad|nervous|worried|shy|alarmed"},
    {"weak", "weak|soft|sad|small|tired|faint"},
    {"rescue_elder",
     "There came [elder=grown_up], the [job], with [a] [a_tool]."
     "|[Elder=grown_up], [a] [trait] [job], brought [a] [a_tool] and some [material]."},
    {"rescue_free",
     "With the [thing] they worked [adverb] for [number] minutes, until the [beast] was free."
     "|“Hold it [adverb],” [said] [elder], and freed the [beast] with the [look] [thing]."},
    {"rescue_after",
     "It gave a happy [beast.noise] and [beast.moved] around [hero] [number] times."
     "|“Well done, [hero],” [said] [elder]. The [beast] ate some [crop] and [beast.moved] away."
     "|The next [daytime] the [beast] came to the [house] and left [a] [looks.keepsake] [keepsake] "
     "for [hero]."},

    // ---- Learning a skill ----
    {"lesson",
     "[Time], [hero] asked [elder=grown_up], [a] [trait] [job]: “Will you teach me to [art=skill]?” "
     "[lesson_answer] [lesson_fail] [lesson_comfort] [lesson_practice] "
     "[lesson_success] [lesson_prize] [finale]"},
    {"lesson_answer",
     "“It takes [x=virtue] and [y=virtue],” [said] [elder]."
     "|“Come to the [building] on [weekday],” [said] [elder]."
     "|“First bring me [treat],” [said] [elder]."},
    {"lesson_fail",
     "On [x=weekday] [hero] hurt [hero.his] [body]. On [y=weekday] [hero] broke [a] [looks.ware] "
     "[ware]."
     "|The [ordinal] time, [hero] fell into the [hole] and landed on [a] [animal_look] [animal]."
     "|[Hero] tried [number] times and was [upset]."},
    {"lesson_comfort",
     "“Even [a] [job] makes mistakes,” [said] [elder]."
     "|“Try again, [adverb] this time,” [said] [elder]."
     "|[Hero] [wept], but [elder] only [smiled]."},
    {"lesson_practice",
     "So [hero] practiced [at_place], with [a] [animal_look] [animal] watching."
     "|Every [daypart] [hero] practiced [adverb] [at_place]."},
    {"lesson_success",
     "[Suddenly], [hero] could [art] like [a] [job]!"
     "|One [weather] [daytime], [hero] could [art] at last."},
    {"lesson_prize",
     "[Elder] gave [hero] [a] [a_thing]."
     "|Now [hero] is teaching [friend=hero.other] to [art], too."
     "|“I am so [pleased], [hero],” [said] [elder]."},

    // ---- Lost in the wild ----
    {"stranger",
     "[Time], [hero] followed [a] [animal_look] [animal] into the [place=inland]. [stranger_path] "
     "[stranger_lost] [stranger_meet] [stranger_help] [stranger_thanks] [finale]"},
    {"stranger_path",
     "[Hero] passed the [x=spot] and the [y=spot]."
     "|First [hero] came to the [x=spot], then to the [y=spot]."},
    {"stranger_lost",
     "Soon [hero] did not know the way back and felt [afraid]."
     "|It grew dark, and every [tree] looked like [a] [animal]. [Hero] [wept]."
     "|Far away, [a] [animal_look] [animal] made a sound."},
    {"stranger_meet",
     "“Are you lost?” [asked] [a] [trait] [who=job] with [a] [a_thing]. “Yes,” [said] [hero]."
     "|There came [a] [trait] [who=job] with [a] [a_thing]. “Please help me!” [cried] [hero]."
     "|[Suddenly], [hero] met [a] [trait] [who=job], who carried [a] [a_thing] and [a] [animal_look] "
     "[bird]."},
    {"stranger_help",
     "The [who] gave [hero] [treat] and led [hero] back, past the [y] and the [x]."
     "|“Follow me,” said the [who]. They [went] back to the [y], and from there to the [x]."
     "|The [who] drew a map on some [material]: first the [y], then the [x], then the [house]."},
    {"stranger_thanks",
     "“Help the next one who is lost,” [said] the [who] [adverb]."
     "|The next [weekday] [hero] brought the [who] [treat]."
     "|[Hero] waved until the [who] and the [look] [thing] were out of sight."},

    // ---- In the kitchen ----
    {"kitchen",
     "[Time], [hero] and [hero.his] [kin=relative] made [a] [sweet_taste] [cake=sweet] for "
     "[elder=grown_up], who had [a] [ill=illness]. [kitchen_mix] [kitchen_mishap] "
     "[kitchen_again] [kitchen_give] [finale]"},
    {"kitchen_mix",
     "They mixed [x=flavour], [y=flavour] and [fruit] in [a] [a_ware]."
     "|[Hero] put [x=flavour] and [y=flavour] into [a] [a_ware] and stirred [adverb]."},
    {"kitchen_mishap",
     "“Stop!” [cried] [hero.his] [kin]. “That is not [x], that is [z=flavour]!”"
     "|[Suddenly], [a] [animal_look] [beast=small_animal] [beast.moved] across the [furniture] and "
     "knocked over the [thing]."
     "|The oven smoked, and the first [cake] tasted like [a] [junk_look] [junk]."},
    {"kitchen_again",
     "They [laughed] and began again, [adverb]."
     "|It took [number] minutes to clean the [furniture]."
     "|[Hero] was [upset]. “Every [job] begins like that,” [said] [hero.his] [kin]."},
    {"laughed", "laughed|sighed|giggled|shrugged|groaned|chuckled"},
    {"kitchen_give",
     "“How [sweet_taste]!” [cried] [elder] at [meal]. “My [ill] is gone!”"
     "|[Elder] ate [number] pieces and was as [glad] as [a] [animal]."
     "|They took the [cake] to [elder], along with [a] [a_gift] and some [flower]."},

    // ---- A garden ----
    {"planting",
     "In [planting_month], [hero] planted [x=crop] and [y=crop] behind the [house]. "
     "[planting_care] [planting_thief] [planting_deal] [planting_sell] [finale]"},
    {"planting_care",
     "[Hero] watered them [adverb] every [daypart]."
     "|[Hero] dug with [a] [looks.tool] [tool] until [hero.his] [body] hurt."
     "|“Grow!” [hero] [said], and played songs on [a] [looks.instrument] [instrument]."},
    {"planting_thief",
     "One [hot] morning half of the [x] had been eaten. [Hero] was [cross]. Behind the [spot] stood "
     "[a] [animal_look] [beast=four_legs]."
     "|[Suddenly], [hero] saw who stole the [x]: [a] [animal_look] [beast=four_legs]!"
     "|“Who ate my [x]?” [cried] [hero]. It was [a] [animal_look] [beast=four_legs] with [number] "
     "children."},
    {"planting_deal",
     "So [hero] left the [x] to the [beast] and kept the [y]."
     "|[Hero] built a fence of [material] around the [y], and gave the [x] to the [beast]."
     "|“Eat the [x],” [said] [hero], “but the [y] are mine.” The [beast] gave [a] [beast.noise] and "
     "[beast.moved] away."},
    {"planting_sell",
     "In [harvest_month], [hero] sold the [y] to [a] [trait] [job] for [a] [a_thing]."
     "|In the end there were [number] baskets of [y], and [hero.his] [relative] made [dish_taste] "
     "[dish]."
     "|The [y] won [a] [a_thing] at the [contest]."},

    // ---- A noise in the night ----
    {"night",
     "One [dark] night there was a noise behind the [den=furniture]. [night_fear] [night_call] "
     "[night_found] [night_care] [night_name] [finale]"},
    {"night_fear",
     "[Hero] thought of [x=dream] and [y=dream] and was [afraid]."
     "|To [hero] it sounded like [a] [junk_look] [vehicle] with [a] [bird] inside."
     "|“Is it [a] [animal], or is it [a] [job]?” [asked] [hero], and [wept]."},
    {"night_call",
     "[Hero.his] [kin=relative] came with [a] [a_tool] and [adverb] looked behind the [den]."
     "|[Hero] took [a] [a_tool] and woke [hero.his] [kin=relative]. “Stay close to me!”"},
    {"night_found",
     "There sat [a] [animal_look] [beast=small_animal]! It gave [a] [beast.noise] and [beast.moved] "
     "under the [furniture]."
     "|“It is only [a] [beast=small_animal]!” [cried] [hero.his] [kin], and dropped the [thing]."
     "|Between [a] [junk_look] [x=junk] and [a] [junk_look] [y=junk] lay [a] [beast=small_animal]."},
    {"night_care",
     "[Hero] gave the [beast] some [dish] and a bed in the [container]."
     "|“You were more [scared] than I was, little [beast],” [said] [hero]."
     "|The [beast] had come in from the [storm], and [hero] dried it [adverb]."},
    {"night_name",
     "[Hero] named it [pal=petname]. Since then [pal] has slept beside the [furniture]."
     "|“Let us call it [pal=petname],” [said] [hero.his] [kin]. “[Pal] may stay until [month].”"},

    // ---- Something broken ----
    {"broken",
     "[Time], [hero] was playing [pastime] and dropped [a] [a_thing] that belonged to [hero.his] "
     "[kin=relative]. [broken_crash] [broken_hide] [broken_truth] [broken_mend] [finale]"},
    {"broken_crash",
     "It fell on the [furniture] and broke into [number] pieces."
     "|[Crash]! It lay under the [furniture], broken."
     "|[A] [animal_look] [pet] ran off with one half of it."},
    {"crash", "crash|bang|crack|smash|thud|clatter"},
    {"broken_hide",
     "[Hero] hid the [thing] in the [container] and felt [upset]."
     "|That night [hero] dreamed of [x=dream] and [y=dream] who asked for the [thing]."
     "|[Hero] used [x=material] and [y=material], but the [thing] looked like [a] [junk_look] [junk]."},
    {"broken_truth",
     "[Suddenly], [hero] told the truth. [Hero.his] [kin] was [cross] for a moment, and then "
     "[smiled]."
     "|“Where is my [thing]?” [asked] [hero.his] [kin] at [meal]. “I broke it,” [said] [hero], and "
     "[wept]."},
    {"broken_mend",
     "They took it to [elder=grown_up], [a] [trait] [job], who mended it in [number] minutes."
     "|“[Elder=grown_up] can mend any [thing],” said [hero.his] [kin]. By [weekday] it was done."
     "|Together they mended the [thing] with [x=material] and [y=material] and painted it [colour]."},

    // ---- A stray animal ----
    {"stray",
     "[Time], [a] [animal_look] [beast=pet] followed [hero] home from the [place=location]. "
     "[stray_ask] [stray_search] [stray_name] [stray_deed] [stray_end]"},
    {"stray_ask",
     "“May I keep it?” [hero] asked [hero.his] [kin=relative]. “Only if nobody misses it.”"
     "|“[A] [beast] in the [house]? Never!” [cried] [hero.his] [kin=relative]. But the [beast] gave "
     "[a] [beast.noise]."},
    {"stray_search",
     "They asked the [x=job] and the [y=job], but nobody knew the [beast]."
     "|They hung posters on the [x=spot] and the [y=spot] for [number] days."
     "|Only [a] [trait] [job] came, who was looking for [a] [animal_look] [animal]."},
    {"stray_name",
     "So [hero] named it [pal=petname], fed it [dish_taste] [dish] and taught it to [trick]."
     "|“Your name is [pal=petname],” [said] [hero], and gave it [vegetable] with [flavour]."},
    {"trick", "sit|roll over|shake hands|jump through a hoop|fetch the newspaper|dance|"
              "stand on its head|ring a bell|open doors|count to three|carry a basket|climb a ladder|"
              "beg|play dead|bow|sing along"},
    {"stray_deed",
     "[Suddenly], [pal] found [a] [a_thing] that [hero.his] [kin] had lost [number] years ago."
     "|When there was [a] [storm], [pal] woke [a] [trait] [job] just in time."
     "|Once [pal] ran away with [a] [a_thing], but [hero] was not [cross]."},
    {"stray_end",
     "[Hero] and [pal] still go to the [place] every [weekday].\n"
     "|“[Pal] is the most [trait] [beast] in [country],” says [hero].\n"
     "|[Pal] sleeps in the [container] and dreams of [dish], and [hero] dreams of [dream].\n"},
};

const size_t stories_n_plots = sizeof stories_plots / sizeof *stories_plots;
