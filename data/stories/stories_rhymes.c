// stories_rhymes: the rhymes of the training text, and the refrains of the tales. See stories.h.
//
// From its second sentence on a tale requires a model to copy earlier words, and models learn that late. Until then a
// remembered name is one of some hundred and fifty equally likely words; and when only a few words in a hundred are
// remembered ones, each step towards copying gains little. A rhyme repeats a handful of words again and again ("This is
// the robin that took the spoon that Eva found"), often after the same words as before. There most of the loss
// disappears as soon as a model learns that words repeat. The refrains are rhymes of one or two sentences near the
// beginning and the end of a tale. What was measured of this, and what was not, is in doc/log.md.
//
// A rhyme keeps the same two children for four verses, so that few names in a context belong to other children. One
// verse calls girls, then boys: there a name comes where only its sex is known, as after "girl named" in a tale. Two
// more say who is a boy, and repeat a relative and a dish. (Rejected: verses about the hero's house, a skill and the
// way back too. They took the place of verses that repeat more; doc/log.md.)
//
// The invariant is that of the whole grammar: one derivation for each text. The rhymes differ in their
// first words or in the words around the first choice, and each choice is written out where it is made.
//
// Rejected: rhymes that rhyme (sounds are of no use to a model of text); numbers counted down (arithmetic); random
// words written twice (a tale has nothing like it).
#include "data/stories/stories_tables.h"

const GrammarRule stories_rhymes[] = {
    // ---- Rhymes ----
    {"rhyme", "[Hero=name] and [friend=hero.other] sang: [verse] [verse] [verse] [verse]\n"},
    {"verse",
     "2* [Hero], [hero], what do you see? I see [friend] looking at me. [Friend], [friend], what do you "
     "see? I see [hero] looking at me."
     "|2* Where is [hero]? Where is [hero]? Here is [hero], here is [hero]! How are you, [hero]? Very "
     "well, says [hero], and where is [friend]? Here is [friend], here is [friend]!"
     "|This is the [a_thing] that [hero] found. This is the [beast=small_animal] that took the [look] "
     "[thing] that [hero] found. This is [friend], who called the [beast] that took the [look] [thing] "
     "that [hero] found."
     "|Who took the [a_thing]? [Hero] took the [look] [thing]! Who, [hero]? Not [hero]! Then who took "
     "the [look] [thing]? [Friend] took the [look] [thing]! Who, [friend]? Not [friend]!"
     "|[Hero] has [a] [a_thing]. [Friend] wants the [look] [thing]. Oh [hero], give me the [look] "
     "[thing], says [friend]. Oh [friend], the [look] [thing] is mine, says [hero]."
     "|Good morning, [elder=grown_up]! Good morning, [hero]! Did you sleep well, [elder]? I did, "
     "[hero]. And how is [friend], [hero]? [Friend] is well, [elder]."
     "|Sleep, [hero], sleep. The [beast=small_animal] is asleep, [hero], sleep like the [beast]. The "
     "[place=building] is dark, [hero], sleep like the [place]."
     "|Does [hero] see [a_sight]? [Hero] sees the [x], and [friend] sees the [x] too. Then [friend] "
     "shows the [x] to [hero]."
     "|Knock, knock, who is there? The [x=job]. Which [x]? The [x] from the [place=building]. Come in, "
     "[x] from the [place], come in, says [hero] to the [x]."
     "|Look, on the [x=furniture] is [a] [y=container], says [friend] to [hero], and in the [y] on the "
     "[x] is [a] [thing=keepsake]. Oh [friend], give me the [thing] in the [y] on the [x]!"
     "|2* Is [hero] a [hero.child]? [Hero] is a [hero.child]! Is [friend] a [hero.child]? No, [friend] "
     "is a [friend.child]! Who knows [hero]? [Friend] knows [hero.him]. Who knows [friend]? [Hero] "
     "knows [friend.him]."
     "|2* Come, girls, says the [x=job]. Come, [girl], come, [girl], come, [girl], come, [girl]! Come, "
     "boys, says the [x]. Come, [boy], come, [boy], come, [boy], come, [boy]! Come, [hero], and come, "
     "[friend], says the [x]."
     "|[Hero] calls [hero.his] [kin=relative]: may I have some [x=dish]? Yes, [hero], says the [kin], "
     "have some [x]. [Friend] calls the [kin]: may I have the [x] too? Yes, [friend], says the [kin], "
     "here is the [x]."},
    {"a_sight", "[a] [x=animal]|[a] [x=vehicle]|[a] [x=tree]|[a] [x=instrument]|[a] [x=tool]"},

    // ---- Refrains ----
    {"hero_refrain",
     "“Oh [hero], [hero], where are you?” people called, and [hero] said: “Here is [hero]!”"
     "|“I am [hero],” said [hero], “and whoever needs [hero] can call [hero].”"
     "|Everybody knew [hero]: [hero] here, [hero] there, always [hero]."
     "|When people saw [hero] they said, “There goes [hero]!”, and [hero] waved."
     "|If you met [hero], you liked [hero], and if you liked [hero], [hero] liked you."},
    {"friend_refrain",
     "“Oh [hero]!” said [friend]. “Oh [friend]!” said [hero]. And [hero] hugged [friend], and [friend] "
     "hugged [hero]."
     "|[Hero] looked at [friend], and [friend] looked at [hero]. Oh, [hero]! Oh, [friend]!"
     "|Where [hero] was, there was [friend], and where [friend] was, there was [hero]."
     "|“Good night, [hero],” said [friend]. “Good night, [friend],” said [hero]. So [hero] and "
     "[friend] went home."},
    {"end_refrain",
     "And if you ask who did it, the answer is [hero], [hero], [hero]!"
     "|“Well done, [hero],” people said, “nobody is like [hero].” And [hero] smiled."
     "|Sleep well, [hero]. Tomorrow is another day for [hero], and [hero] will be there."},
};

const size_t stories_n_rhymes = sizeof stories_rhymes / sizeof *stories_rhymes;
