"""Word lists and the source of randomness of the demo model's skills.

What a skill fills in (names, objects, cities, number pairs) is split in two: what training draws from, and what is held out
for evaluation. The split is by a checksum of the word, so it never depends on the order of draws.
"""

import random
import zlib

import wordnet

NAMES = """Mia Tom Anna Ben Lena Paul Nora Max Ella Finn Ida Oscar Ruth Leo Clara Hugo Emma Noah Alma Felix Greta Karl
Lucy Sam Rosa Ivan Olga Peter Maria Jack Helen Victor Sofia David Julia Adam Eva Simon Laura Martin Alice Bob Carol Dan Erik
Fiona George Hana Igor Jane Kate Liam Mona Nils Omar Priya Quinn Rita Sven Tina Uma Vera Walter Yara Zoe Amir Bella Carlos
Dora Elias Frida Gustav Hilda Iris Jonas Kira Luis Marta Nadia Otto Pia Rafael Sara Theo Ursula Viola Wanda Xenia Yusuf Zara
Agnes Boris Celia Diego Edith Fatima Gloria Henry Ingrid Julian Klaus Linda Miguel Nina Olivia Pedro Robert Selma Tariq
Andrea Bruno Chloe Dennis Esther Frank Grace Harold Irene Jacob Karen Louis Monica Nathan Oliver Paula Ralph Sandra Thomas
Vincent William Arthur Beth Charles Daisy Edgar Flora Gina Howard""".split()
HEROES = "Mia Tom Anna Ben Lena Paul Nora Max Ella Finn Ruth Leo Clara Hugo Emma Felix Greta Oscar".split()  # of stories
ANIMALS = """cat dog horse rabbit fox owl mouse bear hen duck goat sheep frog turtle parrot swan cow pig donkey monkey elephant
tiger lion wolf snake fish bird bee ant spider snail crab whale dolphin seal penguin eagle crow sparrow pigeon goose turkey
peacock kitten puppy lamb calf hamster squirrel hedgehog beaver otter deer camel zebra giraffe kangaroo butterfly beetle worm
lizard toad buffalo antelope panther badger""".split()
FOODS = """apples bread honey soup cheese berries cake plums nuts pears rice milk carrots tea coffee chicken lemons sandwiches
biscuits sugar bacon pasta noodles eggs butter peas beans grapes melons pie potatoes tomatoes cabbage candy chocolate bananas
cherries fish salad pancakes yoghurt corn onions mushrooms juice porridge oranges peaches pizza""".split()
CHARACTERS = """dragon wizard pirate robot king queen princess knight poet sailor teacher doctor baker farmer giant ghost clown
witch prince detective""".split()
CITIES = """Rome Paris London Berlin Madrid Vienna Oslo Lisbon Prague Dublin Athens Cairo Tokyo Delhi Lima Boston Chicago
Geneva Hamburg Milan Naples Oxford Porto Quito Riga Seoul Turin Utrecht Venice Warsaw Zurich Bergen Cologne Denver Exeter
Florence Glasgow Helsinki Istanbul Kyoto Lyon Munich Nairobi Osaka Perth Seville Tallinn Valencia York Bristol Dallas Dresden
Leeds Malaga Montreal Nice Odessa Phoenix Rabat Sydney Tunis Basel Bremen Cadiz Ghent Havana Krakow Leipzig""".split()
COLOURS = "red blue green yellow white black brown orange purple pink grey golden silver".split()
THINGS = """kite ball boat book lamp chair hat coat cup bike drum flute clock basket blanket ring key box bag map table mirror
candle bottle guitar piano telescope umbrella ladder hammer wagon bell pencil spoon scarf violin kettle bucket sled balloon
whistle puzzle doll marble lantern""".split()
NOT_THINGS = set("""gun rifle bullet weapon drug pistol cigarette opium ammunition bomb bomber missile musket firearm grenade
alcohol cigar revolver coffin bayonet etcetera works addition subsection female male irons quarters output""".split())
JOBS = """baker teacher doctor farmer painter pilot sailor nurse singer writer gardener tailor carpenter cook driver lawyer
engineer librarian dentist plumber waiter clerk barber fisherman potter""".split()
PLACES = """garden forest village river hill market harbour school castle bridge meadow lake library island mill
mountain kitchen station park cellar attic hall tower barn office""".split()
ADJECTIVES = "small brave quiet kind clever old young happy curious gentle proud lazy friendly careful".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
SUBJECTS = "music history sport chess painting travel poetry cooking science football dancing reading".split()
NUMBER_WORDS = "one two three four five six seven eight nine ten".split()


STARTS = "b c d f g h j k l m n p qu r s t v w y z br ch cl dr fl gr kl kr pr sh sk sl st th tr".split()


def held_out(text, one_in=10):
    """Whether evaluation alone may use this text: the same answer on every machine and in every run."""
    return zlib.crc32(text.encode()) % one_in == 0


def article(word):
    return "an" if word[0].lower() in "aeiou" else "a"


def sentence(text):
    return text[0].upper() + text[1:]


def listed(items, last="and"):
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + f" {last} {items[-1]}"


class Draw(random.Random):
    """A seeded source of words and values; `held` draws from what training never sees."""

    def __init__(self, seed, held=False):
        super().__init__(seed)
        self.held = held

    def chance(self, p):
        return self.random() < p

    def of(self, pool, one_in=10):
        while True:
            word = self.choice(pool)
            if held_out(word, one_in) == self.held:
                return word

    def several(self, pool, count, one_in=10):
        found = []
        while len(found) < count:
            word = self.of(pool, one_in)
            if word not in found:
                found.append(word)
        return found

    def made_up(self):
        """A name nobody has: two or three syllables, sometimes spelled less evenly (Igor, Tariq, Brenth)."""
        while True:
            if self.held or self.chance(0.5):
                word = "".join(self.choice("bdfghjklmnprstvwz") + self.choice("aeiou") + self.choice(["", "", "", "n", "r", "l", "s"])
                               for _ in range(self.randint(2, 3)))
            else:
                word = self.choice(["", "", "", *STARTS])
                for _ in range(self.randint(1, 3)):
                    word += self.choice("aeiou") + self.choice(["", *"bcdfghjklmnprstvwxz", *"lnrst", *STARTS])
                word += self.choice(["", "", "a", "o", "e", "y", "q", "th", "ck", "ng", "x", "n", "s", "r"])
            if 3 <= len(word) <= 11 and held_out(word.capitalize()) == self.held:
                return word.capitalize()

    def any_noun(self, file_numbers=()):
        """Any common noun, or one of a lexicographer file: so that what is copied may be any word, not one of a short list."""
        return self.of(wordnet.all_nouns(file_numbers))

    def name(self):
        kind = self.random()
        if self.held:
            return self.made_up() if kind < 0.4 else self.of(NAMES)
        return self.made_up() if kind < 0.35 else self.any_noun().capitalize() if kind < 0.65 else self.of(NAMES)

    def names(self, count):
        found = []
        while len(found) < count:
            name = self.name()
            if name not in found:
                found.append(name)
        return found

    def city(self):
        kind = self.random()
        if self.held:
            return self.made_up() if kind < 0.3 else self.of(CITIES)
        return self.made_up() if kind < 0.3 else self.any_noun().capitalize() if kind < 0.55 else self.of(CITIES)

    def thing(self):
        if not self.held and self.chance(0.5):
            return self.any_noun()
        if self.chance(0.5):
            return self.of(THINGS)
        while True:
            word = self.of(wordnet.nouns(wordnet.FILE_ARTIFACT, 500))
            if word not in NOT_THINGS and not word.endswith("s"):
                return word

    def animal(self):
        return self.any_noun((wordnet.FILE_ANIMAL,)) if not self.held and self.chance(0.4) else self.of(ANIMALS)

    def food(self):
        return self.any_noun((wordnet.FILE_FOOD,)) if not self.held and self.chance(0.4) else self.of(FOODS)

    def job(self):
        return self.any_noun((wordnet.FILE_PERSON,)) if not self.held and self.chance(0.4) else self.of(JOBS)

    def word(self):
        return self.choice(wordnet.learned()).word

    def digits(self, count):
        while True:
            code = "".join(self.choice("0123456789") for _ in range(count))
            if held_out(code) == self.held:
                return code
