// stories_words: the word lists of the story grammar. See stories.h and, for the notation, grammar.h.
//
// A list holds words that fit the same places in a sentence. The name of the list is the class of its words, and a form
// such as looks.toy lists the words that fit that class. Words of one list are equally likely, so that each is seen
// often enough to be learned: a corpus should be hard to predict because of its many choices, not because of words that
// occur three times.
//
// The invariant that keeps the entropy exact: no list, and no list of lists, contains a word twice
// (grammar_load refuses it), so a word in the text names its choice.
#include "data/stories/stories.h"

const GrammarRule stories_words[] = {
    // ---- Who ----
    {"girl", "Anna|Bella|Clara|Daisy|Ella|Fiona|Grace|Hannah|Iris|Julia|Kate|Lily|Mia|Nora|Olive|Pia|"
             "Ruby|Sara|Tessa|Una|Vera|Wendy|Zoe|Alma|Beth|Cora|Dora|Eva|Flora|Greta|Hilda|Ida|Jane|"
             "Kira|Lucy|Martha|Nina|Polly|Rosa|Sophie|Tilda|Viola|Willa|Yara|Agnes|Bertha|Celia|Edith|"
             "Freya|Gwen|Helen|Ingrid|Josie|Klara|Leila|Maya|Nell|Petra|Rita|Susan|Thea|Ursula|Wilma|"
             "Rachel|Paula|Monica|Lydia|Judith|Irene|Heidi|Gloria|Esther|Carmen|Brenda|Amelia"},
    {"boy", "Adam|Ben|Carl|David|Eric|Felix|George|Henry|Ivan|Jack|Kevin|Leo|Max|Noah|Oscar|Paul|"
            "Robin|Sam|Tom|Victor|Walter|Zack|Albert|Bruno|Casper|Dan|Emil|Frank|Gus|Hugo|Ian|Jonas|"
            "Karl|Luke|Martin|Nick|Otto|Peter|Ralph|Simon|Toby|Vincent|William|Yusuf|Anton|Basil|"
            "Charlie|Dylan|Edgar|Finn|Gilbert|Harry|Isaac|Jim|Kurt|Lars|Milo|Nils|Omar|Philip|Quentin|"
            "Roland|Stefan|Theo|Ulrich|Wesley|Xavier|Patrick|Neil|Morgan|Louis|Kenneth|Jasper|Howard|"
            "Gregory"},
    {"name", "[girl]|[boy]"},
    {"other.girl", "[boy]"},
    {"other.boy", "[girl]"},
    {"lady", "Mrs. Abbott|Mrs. Barlow|Mrs. Carver|Mrs. Dixon|Mrs. Ellis|Mrs. Fletcher|Mrs. Goodwin|"
             "Mrs. Harper|Mrs. Ingram|Mrs. Jensen|Mrs. Kendall|Mrs. Lambert|Mrs. Mason|Mrs. Norton|"
             "Mrs. Osborne|Mrs. Parker|Mrs. Quincy|Mrs. Rowland|Mrs. Sutton|Mrs. Thornton|"
             "Mrs. Underhill|Mrs. Vaughan|Mrs. Walsh|Mrs. Yates|Mrs. Bishop|Mrs. Chambers|Mrs. Drake|"
             "Mrs. Emerson|Mrs. Fisher|Mrs. Gardner|Mrs. Holloway|Mrs. Ives"},
    {"gentleman", "Mr. Adler|Mr. Bennett|Mr. Cooper|Mr. Dawson|Mr. Everett|Mr. Foster|Mr. Griffin|"
                  "Mr. Hughes|Mr. Irving|Mr. Jarvis|Mr. Keller|Mr. Lawson|Mr. Morris|Mr. Nolan|"
                  "Mr. Oakley|Mr. Pratt|Mr. Quigley|Mr. Reeves|Mr. Sanders|Mr. Turner|Mr. Upton|"
                  "Mr. Vance|Mr. Whitaker|Mr. Young|Mr. Barnes|Mr. Curtis|Mr. Doyle|Mr. Elliott|"
                  "Mr. Fuller|Mr. Gibson|Mr. Hobbs|Mr. Kent"},
    {"grown_up", "[lady]|[gentleman]"},
    {"woman", "mother|grandmother|aunt|sister|godmother"},
    {"man", "father|grandfather|uncle|brother|godfather"},
    {"relative", "[woman]|[man]"},
    {"he", "they"},
    {"he.girl", "she"}, {"he.boy", "he"}, {"he.lady", "she"}, {"he.gentleman", "he"}, {"he.woman", "she"},
    {"he.man", "he"},
    {"him", "them"},
    {"him.girl", "her"}, {"him.boy", "him"}, {"him.lady", "her"}, {"him.gentleman", "him"}, {"him.woman", "her"},
    {"him.man", "him"},
    {"his", "their"},
    {"his.girl", "her"}, {"his.boy", "his"}, {"his.lady", "her"}, {"his.gentleman", "his"}, {"his.woman", "her"},
    {"his.man", "his"},
    {"child", "child"},
    {"child.girl", "girl"}, {"child.boy", "boy"},
    {"petname", "Biscuit|Patch|Pepper|Button|Shadow|Whiskers|Ginger|Rusty|Snowball|Muffin|Domino|"
                "Sparky|Nutmeg|Pickle|Bandit|Cocoa|Fluffy|Scout|Mittens|Waffles|Peanut|Ziggy|Marble|"
                "Toffee|Smudge|Bramble|Pebbles|Tinker|Buster|Freckles"},
    {"job", "baker|butcher|carpenter|blacksmith|farmer|fisherman|miller|gardener|tailor|cobbler|"
            "teacher|doctor|nurse|painter|potter|weaver|sailor|soldier|hunter|shepherd|librarian|"
            "mechanic|plumber|postman|barber|beekeeper|builder|clown|cook|dancer|dentist|driver|"
            "explorer|firefighter|florist|goldsmith|grocer|guard|inventor|jeweler|juggler|juror|"
            "knight|lighthouse keeper|locksmith|magician|mason|merchant|miner|musician|optician|"
            "peddler|pilot|poet|printer|ranger|roofer|sculptor|singer|storyteller|surgeon|tinsmith|"
            "toymaker|trader|waiter|watchmaker|woodcutter|writer|zookeeper|astronomer|mayor|captain|"
            "judge|messenger|porter|scholar|chimney sweep|ferryman|detective|gravedigger|innkeeper|"
            "journalist|lifeguard|pharmacist|photographer|policeman|professor|puppeteer|rope maker|"
            "scientist|secretary|translator|umpire|violinist|tightrope walker"},

    // ---- What people are like ----
    {"trait", "brave|clever|kind|curious|gentle|cheerful|patient|polite|stubborn|shy|lively|honest|"
              "generous|thoughtful|careful|quiet|bold|friendly|helpful|dreamy|playful|restless|"
              "sensible|modest|proud|funny|talkative|hopeful|loyal|graceful|practical|daring|tidy|"
              "untidy|sleepy|forgetful|serious|merry|nimble|imaginative|adventurous|warm-hearted|"
              "stout|slender|freckled|red-haired|curly-haired|calm|witty|hardworking|good-natured|"
              "absent-minded|dutiful|sensitive|truthful|fearless|energetic|resourceful|cautious|"
              "mild-mannered|quick-witted|easygoing|reliable"},
    {"virtue", "courage|patience|kindness|honesty|friendship|hope|trust|generosity|curiosity|"
               "gratitude|wisdom|humor|loyalty|forgiveness|imagination|practice|teamwork|modesty|"
               "politeness|determination|a good heart|a warm smile|a steady hand|an open mind|sharing|"
               "listening"},
    {"riches", "gold|silver|diamonds|pearls|rubies|emeralds|sapphires|a crown|a castle|a palace|"
               "a throne|a treasure|a mountain of coins|a fine carriage|a velvet coat|a golden ring|"
               "a shelf of trophies|fame|fortune|luck|a hundred medals|a ship full of silk|"
               "a sack of jewels|all the sugar in the world"},
    {"glad", "happy|delighted|joyful|proud|relieved|thankful|excited|pleased|overjoyed|thrilled|"
             "grateful|content|lighthearted|hopeful|merry|satisfied|peaceful|lucky|giddy|cheerful|"
             "calm|carefree|radiant|jolly"},
    {"pleased", "proud|pleased|happy|impressed|delighted|glad|touched|amazed"},
    {"upset", "sad|lonely|worried|miserable|gloomy|unhappy|heartbroken|disappointed|anxious|nervous|"
              "troubled|frustrated|sorrowful|discouraged|tearful|upset|wretched|downcast|weary|"
              "dismayed|glum|dejected|crestfallen"},
    {"cross", "angry|furious|cross|grumpy|bitter|annoyed|impatient|irritated|sulky|outraged|indignant|"
              "moody"},
    {"afraid", "afraid|frightened|scared|terrified|alarmed|uneasy|shaken|nervous|bewildered|timid"},
    {"adverb", "slowly|quickly|quietly|softly|gently|carefully|eagerly|gladly|happily|sadly|bravely|"
               "calmly|cheerfully|cleverly|closely|curiously|firmly|gracefully|hastily|heavily|kindly|"
               "lazily|lightly|loudly|merrily|nervously|noisily|patiently|politely|proudly|silently|"
               "solemnly|steadily|sweetly|tenderly|thoughtfully|warmly|wearily|wisely|boldly|shyly|"
               "cautiously|clumsily|dreamily|earnestly|faithfully|nimbly|playfully|secretly|swiftly|"
               "obediently|joyfully|seriously|stubbornly|intently|briskly|hopefully|skillfully|"
               "diligently|fearlessly"},
    {"sleepily", "soundly|peacefully|deeply|quietly|calmly|happily|snugly|sweetly"},
    {"suddenly", "suddenly|at last|finally|in the end|after a while|a moment later|soon|before long|"
                 "just then|without warning|at that very moment|an hour later|after [number] minutes|"
                 "out of nowhere|by chance|to everyone's surprise"},

    // ---- Saying ----
    {"said", "said|whispered|murmured|announced|declared|mumbled|sighed|muttered|chuckled|laughed"},
    {"cried", "cried|shouted|exclaimed|called|yelled|gasped|shrieked|squealed|wailed|howled|sputtered|"
              "roared"},
    {"asked", "asked|wondered|inquired|whispered|murmured|stammered"},
    {"smiled", "smiled|grinned|laughed|giggled|nodded|blushed|beamed|clapped|cheered|winked|bowed|"
               "waved|danced|whistled|sang|hummed|twirled|jumped for joy"},
    {"wept", "wept|sobbed|sniffed|frowned|shivered|trembled|groaned|blinked|swallowed|pouted|"
             "stared at the floor|sat very still|bit [hero.his] lip|wiped [hero.his] eyes|"
             "hung [hero.his] head|kicked a pebble"},

    // ---- Things a child may own; looks.CLASS is what fits them ----
    {"toy", "kite|doll|puppet|marble|yo-yo|teddy bear|rocking horse|toy train|toy boat|toy soldier|"
            "puzzle|top|balloon|skateboard|scooter|sled|hoop|domino|rattle|mask|slingshot|dollhouse|"
            "jump rope|toy rocket|toy robot|beanbag|pinwheel|boomerang|chess set|snow globe"},
    {"tool", "hammer|saw|shovel|rake|lantern|ladder|wrench|bucket|rope|pocketknife|fishing rod|"
             "wheelbarrow|watering can|toolbox|chisel|pulley|hook|net|basket|broom|trowel|crowbar|"
             "pitchfork|hatchet|oar|stepladder"},
    {"gadget", "whistle|thermometer|needle|pair of scissors|magnifying glass|flashlight|compass|"
               "telescope|paintbrush|pencil sharpener|calculator|typewriter|camera|microscope|"
               "alarm clock|magnet"},
    {"clothing", "hat|scarf|coat|jacket|sweater|cap|belt|glove|mitten|shawl|cape|apron|ribbon|vest|"
                 "bonnet|raincoat|handkerchief|shirt|skirt|sock|slipper|boot|hood|necktie|blanket|"
                 "cloak|bow tie|headband|backpack|umbrella"},
    {"instrument", "flute|drum|violin|trumpet|guitar|piano|harp|banjo|accordion|cello|clarinet|"
                   "harmonica|horn|lute|mandolin|oboe|recorder|tambourine|trombone|tuba|ukulele|"
                   "xylophone|fiddle|bugle|triangle"},
    {"keepsake", "ring|necklace|bracelet|locket|brooch|medal|coin|key|watch|music box|mirror|shell|"
                 "feather|pendant|seal|crystal|pebble|charm|thimble|candlestick|vase|statue|jewel|"
                 "hourglass|snuffbox|goblet|bell|figurine|comb|earring"},
    {"paper", "book|map|letter|diary|notebook|postcard|photograph|calendar|drawing|almanac|atlas|"
              "dictionary|poem|songbook|scrapbook|newspaper|envelope|ticket|poster|sketchbook|"
              "cookbook|storybook|manuscript|recipe|timetable"},
    {"ware", "teapot|kettle|pan|bowl|spoon|jug|mug|plate|ladle|pitcher|saucer|tray|jar|whisk|"
             "rolling pin|cake tin|sieve|grater|corkscrew|nutcracker|lunchbox|thermos|breadboard|"
             "sugar bowl|pepper mill"},
    {"vessel", "bowl|pan|jar|jug|mug|kettle|pitcher|cake tin|saucepan|frying pan|casserole dish|"
               "bucket|soup pot|teacup"},
    {"colour", "red|blue|green|yellow|orange|purple|pink|brown|black|white|gray|golden|silver|scarlet|"
               "crimson|violet|turquoise|ivory|maroon|cream|lilac|beige|amber|olive|teal"},
    {"looks.toy", "[colour]|wooden|painted|bouncy|striped|spotted|tiny|shiny|homemade|squeaky|plastic|"
                  "carved|wobbly|sparkling|brand-new"},
    {"looks.tool", "sturdy|rusty|heavy|iron|steel|useful|trusty|bent|battered|solid|handy|well-oiled|"
                   "dented|long|worn|crooked|reliable|borrowed|strong|clever|gleaming|oily"},
    {"looks.clothing", "[colour]|woolen|knitted|silk|velvet|cotton|patched|warm|fuzzy|embroidered|"
                       "checkered|soft|ragged|elegant|linen"},
    {"looks.instrument", "polished|old|dusty|wooden|brass|fine|secondhand|beautiful|little|scratched|"
                         "gleaming|splendid|broken-down|loud|cheap"},
    {"looks.keepsake", "[colour]|precious|ancient|antique|delicate|lovely|glittering|round|engraved|"
                       "mysterious|priceless|bronze|copper|glass|oval"},
    {"looks.paper", "yellowed|crumpled|torn|thick|thin|folded|leather-bound|illustrated|faded|"
                    "dog-eared|secret|handwritten|colorful|famous|tattered|inky|unfinished|scribbled"},
    {"looks.ware", "[colour]|chipped|cracked|clay|tin|china|enamel|spotless|flowery|deep|greasy|"
                   "porcelain|pewter|cheerful|rustic"},
    {"junk", "button|bottle|nail|pin|penny|pencil|candle|spring|wheel|bone|stick|brick|cork|acorn|"
             "chestnut|pinecone|leaf|spiderweb|crumb|shoelace|matchbox|stamp|paperclip|"
             "spool of thread|bar of soap|tennis ball|walking stick|doorknob|toothbrush|sponge|"
             "tin can|lump of coal|onion|potato|walnut"},
    {"junk_look", "broken|useless|sticky|bent|moldy|muddy|greasy|lonely|cracked|empty|flat|forgotten|"
                  "strange|smelly|wet|dull|odd|squashed|crusty|rotten|dirty|ordinary|peculiar|burnt|"
                  "lopsided"},
    {"furniture", "bed|table|chair|couch|desk|bookcase|wardrobe|dresser|stove|bench|carpet|curtain|"
                  "piano stool|bathtub|clock|fireplace|lamp|pillow|mattress|armchair|sink|staircase|"
                  "doormat|rug|shelf|window seat|rocking chair|washing machine|radiator|cupboard"},
    {"container", "box|drawer|chest|suitcase|barrel|sack|crate|trunk|bag|closet|cabinet|hamper|bin|"
                  "pantry|oven|purse|mailbox|cookie jar|flowerpot|laundry basket|treasure chest|"
                  "icebox|toy box"},

    // ---- Places; at.CLASS is the preposition that fits ----
    {"inland", "forest|meadow|valley|orchard|garden|field|park|jungle|desert|swamp|vineyard|cave|"
               "canyon|pasture|maze|woods|greenhouse|thicket|grove|prairie|cornfield|graveyard"},
    {"shore", "river|lake|pond|sea|stream|waterfall|creek|bay|fountain|well|harbor|canal|spring|"
              "lagoon|reef|reservoir|brook|ocean"},
    {"height", "hill|cliff|mountain|bridge|tower|roof|dock|hilltop|ridge|dune|pier|island|balcony|"
               "terrace|rampart|lookout|volcano|glacier"},
    {"building", "bakery|market|library|school|museum|church|theater|station|castle|mill|inn|hospital|"
                 "palace|farm|lighthouse|post office|bank|zoo|circus|factory|bookshop|playground|"
                 "airport|stable|barn|windmill|town hall|observatory|aquarium|toy shop|workshop|"
                 "chapel|courthouse|monastery|racetrack|fairground|shipyard|tea house|gymnasium|"
                 "stadium"},
    {"location", "[inland]|[shore]|[height]|[building]"},
    {"at.inland", "in"}, {"at.shore", "by"}, {"at.height", "on"}, {"at.building", "at"},
    {"spot", "gate|fence|hedge|path|wall|doorstep|archway|ditch|signpost|milestone|haystack|woodpile|"
             "footbridge|campfire|statue of a king|mailbox on the corner|broken cart|tree stump|"
             "mossy rock|stone steps|bed of nettles|flagpole|scarecrow|lamppost|beehive|birdhouse|"
             "rose bush|drinking trough"},
    {"hole", "ditch|puddle|well|fish pond|haystack|rain barrel|drain|chimney|deep hole|pit|flower bed|"
             "fountain|pile of leaves|coal cellar|snowdrift|hollow log|tub of paint|swamp|"
             "bramble bush|trench"},
    {"dwelling", "house|cottage|cabin|farmhouse|apartment|hut|mansion|houseboat|bungalow|tent|villa|"
                 "wagon|treehouse|tower room|attic"},
    {"dwelling_look", "small|tiny|cozy|narrow|crooked|drafty|crowded|bright|whitewashed|noisy|sunny|"
                      "stone|comfortable|shabby|old-fashioned|thatched|wooden|peaceful|green|tall"},
    {"town", "village|town|city|hamlet|kingdom|settlement|fishing village|mining town|"
             "mountain village|seaside town"},
    {"town_look", "quiet|busy|sleepy|faraway|dusty|foggy|windy|snowy|pleasant|charming|crowded|remote|"
                  "bustling|rainy|famous|forgotten|hilly|friendly|ancient|prosperous"},
    {"country", "England|France|Spain|Italy|Norway|Sweden|Egypt|India|China|Japan|Brazil|Canada|"
                "Mexico|Greece|Ireland|Scotland|Holland|Poland|Turkey|Kenya|Morocco|Peru|Chile|"
                "Iceland|Finland|Denmark|Austria|Hungary|Persia|Portugal"},

    // ---- Animals ----
    {"pet", "dog|cat|puppy|kitten|rabbit|hamster|guinea pig|tortoise|ferret|poodle|terrier|spaniel|"
            "mouse|gerbil"},
    {"livestock", "cow|goat|sheep|pig|donkey|horse|pony|lamb|calf|piglet|mule|ox|llama|foal"},
    {"wild", "fox|wolf|bear|deer|hedgehog|squirrel|badger|otter|beaver|raccoon|mole|weasel|skunk|"
             "moose|lynx|chipmunk|porcupine|hare|bat|lizard|snake|toad|frog|monkey|tiger|lion|"
             "elephant|giraffe|zebra|kangaroo|panda|camel|leopard|koala"},
    {"bird", "robin|sparrow|owl|eagle|duck|goose|swan|crow|raven|parrot|pigeon|dove|hawk|seagull|"
             "pelican|penguin|peacock|turkey|rooster|hen|stork|heron|falcon|woodpecker|swallow|canary|"
             "finch|magpie|flamingo|blackbird"},
    {"bug", "bee|ant|butterfly|beetle|ladybug|cricket|grasshopper|dragonfly|moth|spider|caterpillar|"
            "firefly|snail|wasp|worm"},
    {"sealife", "crab|seal|dolphin|whale|octopus|lobster|starfish|turtle|trout|salmon|eel|jellyfish|"
                "shark|walrus"},
    {"animal", "[pet]|[livestock]|[wild]|[bird]|[bug]|[sealife]"},
    {"four_legs", "[pet]|[livestock]|[wild]"},
    {"small_animal", "[pet]|[bird]"},
    {"creature", "[pet]|[livestock]|[wild]|[bird]"},
    {"animal_look", "furry|hungry|fat|wild|tame|lost|muddy|spotted|striped|lame|young|old|shaggy|"
                    "skinny|gray|tiny|huge|enormous|noisy|sleepy|friendly|clumsy|timid|silvery|"
                    "one-eyed|greedy|wise|plump|swift|bright-eyed|sly|trembling|frisky|gigantic|"
                    "speckled|gentle|thirsty|mischievous|lazy|fierce|bald|stubborn|feeble|majestic|"
                    "nosy|graceful|dusty|pampered"},
    {"moved.pet", "trotted|scampered|padded|bounced|scurried|crept"},
    {"moved.livestock", "trotted|galloped|plodded|ambled|strolled|lumbered"},
    {"moved.wild", "ran|leaped|crept|slipped|bounded|prowled"},
    {"moved.bird", "flew|fluttered|glided|hopped|soared|swooped"},
    {"noise.pet", "squeak|whimper|yelp|sneeze|snuffle"},
    {"noise.livestock", "snort|grunt|wheeze|bellow|cough"},
    {"noise.wild", "grunt|growl|snort|squeal|hiss"},
    {"noise.bird", "hoot|chirp|screech|whistle|cackle"},

    // ---- Food ----
    {"sweet", "cake|pie|cookie|muffin|pudding|doughnut|pancake|waffle|tart|brownie|candy bar|cupcake|"
              "gingerbread man|honey bun|cinnamon roll|lollipop|chocolate bar|marshmallow|caramel|"
              "custard tart|cream puff|jelly roll|sponge cake|toffee apple|strudel"},
    {"fruit", "apples|pears|plums|cherries|grapes|peaches|lemons|oranges|bananas|berries|strawberries|"
              "raspberries|blueberries|melons|figs|dates|apricots|mangoes|pineapples|coconuts|"
              "gooseberries|currants|olives|raisins|limes"},
    {"vegetable", "carrots|potatoes|onions|tomatoes|cabbages|peas|beans|pumpkins|beets|turnips|"
                  "radishes|cucumbers|peppers|mushrooms|leeks|spinach|lettuce|celery|corn|garlic|"
                  "squash|parsnips|lentils|artichokes|asparagus"},
    {"dish", "soup|stew|porridge|spaghetti|omelet|salad|pizza|chowder|roast chicken|fried rice|"
             "dumplings|noodles|meatballs|baked beans|mashed potatoes|toast|sandwiches|sausages|"
             "scrambled eggs|macaroni|fish sticks|casserole|oatmeal|cornbread|curry|pea soup|hot pot|"
             "ravioli|goulash|barley broth|lasagna|pot roast|rice pudding|tacos|burritos"},
    {"drink", "milk|tea|lemonade|cocoa|apple juice|water|ginger ale|cider|coffee|buttermilk|root beer|"
              "peppermint tea|grape juice|hot chocolate|malt"},
    {"flavour", "salt|sugar|honey|cinnamon|butter|vanilla|ginger|mustard|vinegar|parsley|basil|thyme|"
                "mint|cloves|nutmeg|almonds|walnuts|cheese|jam|syrup|flour|eggs|pepper|maple sugar|"
                "saffron|rosemary|yeast|bacon|dill|sesame"},
    {"meal", "breakfast|lunch|dinner|supper"},
    {"dish_taste", "delicious|hot|spicy|salty|tasty|fresh|warm|rich|steaming|creamy|homemade|hearty|"
                   "savory|smoky|tender|leftover|peppery|mild|thick|greasy"},
    {"fruit_taste", "sweet|sour|juicy|ripe|fresh|dried|crunchy|plump|wild|candied|frozen|sliced|tart|"
                    "bruised|golden"},
    {"sweet_taste", "sticky|crumbly|fluffy|sugary|chewy|buttery|fresh|delicious|moist|creamy|sweet|"
                    "crunchy|heavenly|homemade|soft"},
    {"drink_taste", "hot|warm|cold|sweet|steaming|strong|fresh|iced|watery|weak|foamy|cool"},

    // ---- Nature and weather ----
    {"flower", "roses|daisies|tulips|violets|lilies|poppies|sunflowers|daffodils|buttercups|"
               "dandelions|orchids|bluebells|marigolds|carnations|irises|snowdrops|pansies|peonies|"
               "clover|lavender|forget-me-nots|geraniums|hyacinths|primroses|thistles"},
    {"tree", "oak|maple|pine|birch|willow|elm|apple tree|cherry tree|pear tree|walnut tree|palm|cedar|"
             "beech|poplar|fig tree|chestnut tree|spruce|ash|lemon tree|hazel|redwood|cypress|alder|"
             "sycamore|linden"},
    {"weather", "sunny|cloudy|rainy|windy|foggy|snowy|stormy|chilly|frosty|misty|hot|warm|cold|cool|"
                "breezy|gray|bright|drizzly|icy|muggy|clear|crisp|gloomy|mild|damp"},
    {"dark", "dark|stormy|moonlit|windy|quiet|cold|starry|rainy|foggy|pitch-black|restless|wintry|"
             "silent|moonless"},
    {"cold", "cold|frosty|snowy|icy|foggy|chilly|stormy|gray|freezing|bitter"},
    {"hot", "hot|sunny|bright|warm|cloudless|dry|golden|lazy|sultry|breezy"},
    {"planting_month", "March|April|May|June"},
    {"harvest_month", "August|September|October"},
    {"cold_month", "November|December|January|February"},
    {"hot_month", "May|June|July|August"},
    {"storm", "thunderstorm|blizzard|hailstorm|downpour|hurricane|cloudburst|sandstorm|snowstorm|gale|"
              "whirlwind|shower|flood|heat wave|thick fog|cold spell"},
    {"sky", "sun|moon|clouds|stars|rainbow|sunset|wind|sunrise|evening star|mist|comet|shooting stars"},
    {"season", "spring|summer|autumn|winter"},
    {"month", "January|February|March|April|May|June|July|August|September|October|November|December"},
    {"weekday", "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"},
    {"daypart", "morning|afternoon|evening|day|night"},
    {"festival", "the harvest festival|Easter|Christmas|New Year's Day|the school play|"
                 "the flower parade|midsummer|the big wedding|the spring cleaning|"
                 "the lantern festival|the village fair|the concert|Halloween|the first snowfall|"
                 "the carnival|the long drought|the royal visit|the election|graduation|the holidays"},
    {"number", "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|"
               "sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|"
               "ninety"},
    {"ordinal", "second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth"},

    // ---- Doing ----
    {"went", "walked|ran|skipped|hurried|marched|strolled|wandered|rushed|hiked|raced|tiptoed|trudged|"
             "dashed|rode|traveled|hopped|sneaked|sped|sauntered|jogged|stumbled|cycled|drove|paraded|"
             "roamed"},
    {"hobby", "painting|singing|dancing|swimming|fishing|reading|climbing|sewing|knitting|gardening|"
              "cooking|baking|drawing|skating|sailing|camping|juggling|whistling|collecting stamps|"
              "telling jokes|flying kites|building sandcastles|watching birds|counting stars|"
              "chasing butterflies|solving riddles|writing poems|picking mushrooms|riding horses|"
              "playing chess|feeding ducks|rowing boats|catching frogs|digging holes|inventing games|"
              "reciting verses|folding napkins|polishing stones|pressing flowers|exploring caves|"
              "climbing trees|blowing bubbles|jumping over puddles|listening to rain|sweeping floors"},
    {"skill", "swim|dance|juggle|knit|skate|ski|paint|sew|read|write|spell|bake bread|ride a bicycle|"
              "tie knots|milk a cow|row a boat|carve wood|fold paper cranes|climb ropes|whistle|"
              "sing in tune|tell time|shoot arrows|weave baskets|catch fish|fly a kite|do a handstand|"
              "play the organ|walk on stilts|make pottery|speak French|do magic tricks|throw a lasso|"
              "skip stones|drive a tractor|bind books|ring the church bells|blow glass|shear sheep|"
              "play checkers"},
    {"contest", "spelling bee|pie-eating contest|sack race|swimming race|talent show|chess tournament|"
                "rowing race|snowman contest|baking contest|singing contest|dance contest|"
                "kite contest|tug of war|three-legged race|horse race|sandcastle contest|"
                "riddle contest|costume parade|pumpkin contest|archery contest|quiz|ski race|"
                "wrestling match|soccer match|bicycle race|poetry contest|egg-and-spoon race|"
                "sheepdog trial|soapbox derby|obstacle course"},
    {"vehicle", "bus|train|boat|bicycle|wagon|sleigh|carriage|truck|canoe|ferry|raft|airplane|tractor|"
                "tram|cart|hot-air balloon|motorcycle|steamship|sailboat|taxi|submarine|helicopter|"
                "van|rowboat|stagecoach|rickshaw|spaceship|ambulance|fire engine|gondola"},
    {"outing", "picnic|parade|barbecue|boat trip|fishing trip|treasure hunt|garden party|bonfire|hike|"
               "puppet show|baseball game|birthday party|tea party|school trip|camping trip|"
               "sleigh ride|wedding|open-air concert|balloon ride|butterfly hunt"},
    {"pastime", "cards|checkers|hide-and-seek|charades|dominoes|marbles|pirates|dress-up|bingo|tag|"
                "ping-pong|dice|house|detectives|astronauts|leapfrog|hopscotch|musical chairs|"
                "twenty questions|restaurant"},
    {"crop", "[vegetable]|[flower]"},
    {"dream", "dragons|pirates|unicorns|giants|fairies|mermaids|wizards|castles|elves|princes|"
              "princesses|dinosaurs|rockets|planets|treasure|snowmen|jungles|oceans|acrobats|cowboys|"
              "witches|robots|knights|trolls|ghosts|clouds|faraway islands|talking animals|"
              "flying carpets|chocolate rivers"},
    {"material", "wood|paper|clay|wool|straw|cardboard|leather|cloth|wire|string|wax|bark|stone|"
                 "cotton|felt|rubber|twigs|feathers|seashells|bamboo|thread|plaster|reeds|iron|tin|"
                 "marble"},
    {"body", "arm|leg|knee|ankle|foot|hand|elbow|shoulder|thumb|toe|chin|nose|ear|wrist|finger|"
             "forehead|back|neck"},
    {"illness", "fever|cold|cough|sore throat|headache|stomachache|toothache|rash|flu|earache|chill|"
                "broken leg|sprained ankle|runny nose|black eye"},
    {"kindred", "parents|grandparents|cousins|brothers|sisters|family|aunts|uncles|mother|father|"
                "grandmother|grandfather"},
};

const size_t stories_n_words = sizeof stories_words / sizeof *stories_words;
