// stories_rhymes: the rhymes that training begins with, and the refrains of the tales. See stories.h.
//
// Looking up a word that came before is what a tale asks of a model from its second sentence on, and a model
// learns it late: until then a remembered name is one of some hundred and fifty equally likely words, and
// where only a few words in a hundred are remembered ones, each step towards looking them up gains little. A
// rhyme is made of a handful of words that come back and back ("This is the robin that took the spoon that
// Eva found"), often behind the words they came with before. There most of the loss goes as soon as a model
// finds that words come back. So a corpus may begin with rhymes alone (a primer) and go on with tales alone,
// where what was learned is needed over longer distances. The refrains are rhymes of one or two sentences near
// the beginning and the end of a tale.
//
// The invariant is that of the whole grammar: one derivation for each text. The rhymes differ in their first
// words or in the words around the first choice, and each choice is written out where it is made.
//
// Rejected: rhymes among the tales from the first step on (the skill then comes several times later); rhymes
// that rhyme (sounds are of no use to a model of text); numbers counted down (arithmetic); and random words
// written twice (nothing of that can be used in a tale).
#include "stories_tables.h"

const GrammarRule stories_rhymes[] = {
    // ---- Rhymes ----
    {"rhyme",
     "4* [A] [trait] [kid] sang: [Hero], [hero], what do you see? I see [friend=hero.other] looking at "
     "me. [Friend], [friend], what do you see? I see [hero] looking at me. [Hero] sees [friend], and "
     "[friend] sees [hero].\n"
     "|4* Where is [hero=name]? Where is [hero]? Here is [hero], here is [hero]! How are you, [hero]? "
     "Very well, says [hero], and where is [friend=hero.other]? Where is [friend]? Here is [friend], "
     "here is [friend]! How are you, [friend]? Very well, says [friend].\n"
     "|3* This is the [a_thing] that [hero=name] found. This is the [beast=small_animal] that took the "
     "[look] [thing] that [hero] found. This is the [pet2=livestock] that chased the [beast] that took "
     "the [look] [thing] that [hero] found. This is [friend=hero.other], who called the [pet2] that "
     "chased the [beast] that took the [look] [thing] that [hero] found.\n"
     "|3* Who took the [a_thing]? [Hero=name] took the [look] [thing]! Who, [hero]? Not [hero]! Then who "
     "took the [look] [thing]? [Friend=hero.other] took the [thing]! Who, [friend]? Not [friend]! Then "
     "the [beast=small_animal] took the [thing]. Bad [beast], say [hero] and [friend], give us the "
     "[look] [thing], bad [beast]!\n"
     "|3* [Hero=name] has [a] [a_thing]. [Friend=hero.other] wants the [look] [thing]. “Oh [hero], give me "
     "the [thing]!” says [friend]. “Oh [friend], the [thing] is mine!” says [hero]. So [hero] keeps the "
     "[look] [thing], and [friend] laughs.\n"
     "|4* Good morning, [elder=grown_up]! Good morning, [hero=name]! Did you sleep well, [elder]? I "
     "did, [hero]. And how is [friend=hero.other], [hero]? [Friend] is well, [elder]. Then greet "
     "[friend], [hero]! I will greet [friend], [elder].\n"
     "|Sleep, [hero=name], sleep. The [beast=small_animal] is asleep, [hero], sleep like the [beast]. "
     "The [place=building] is dark, [hero], sleep like the [place]. And [friend=hero.other] is asleep, "
     "[hero], sleep like [friend] and the [beast].\n"
     "|[Hero=name] sees [a_sight]. Does [friend=hero.other] see the [x]? Yes, [friend] sees the [x] "
     "too, and [friend] shows the [x] to [hero].\n"
     "|[Hero=name] loves [a] [beast=pet]. Where [hero] goes, the [beast] goes. When [hero] sings, the "
     "[beast] sings. When [hero] sleeps, the [beast] sleeps, and nobody wakes [hero] and the "
     "[beast].\n"
     "|Knock, knock, who is there? The [x=job]. Which [x]? The [x] from the [place=building]. Come in, "
     "[x] from the [place], come in, and tell us about the [place].\n"
     "|On the [x=furniture] is [a] [y=container], in the [y] is [a] [thing=keepsake], and if you want "
     "the [thing], look in the [y] on the [x].\n"},
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
