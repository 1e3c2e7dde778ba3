"""Names, values and phrases that generated chats, facts and questions are made of.

In phrases {name} is the full name, {first} the first name or the name of the project, {value} the value and {before} a
value that came before it.

Before: generator.py, pairs.py. After: nothing.
"""

from loomlog.schemas.records import Value

PREFERENCE, FACT, DECISION, IDENTITY, CONSTRAINT = "preference", "fact", "decision", "identity", "constraint"


class Theme(Value, frozen=True, kw_only=True):
    """Something that is said of a person or a project."""

    name: str
    fact_class: str
    sentence: str
    """How it is said in a chat: by the person, or by a member of the project."""
    subject: str
    fact: str
    asked: tuple[str, ...]
    values: tuple[str, ...]
    other_subject: str
    """Another name of the same thing, as a second extraction may have chosen it."""
    other_fact: str
    """The same in other words."""
    changes: bool = False
    """Whether the value changes later, in some of the corpus."""
    who: str = ""
    """Question for everyone with a value; empty: none is asked."""


PEOPLE = (
    "Ada Lindqvist",
    "Bruno Falcone",
    "Chidi Okafor",
    "Dagny Halvorsen",
    "Emre Yildiz",
    "Farida Rahimi",
    "Goran Petrovic",
    "Hanne Vermeulen",
    "Ines Cardoso",
    "Jonas Brandt",
    "Keiko Tanabe",
    "Lorcan Doyle",
    "Maya Venkatesan",
    "Nils Aaltonen",
    "Oriane Lefebvre",
    "Pavel Novotny",
    "Quinn Abernathy",
    "Rosa Jimenez",
    "Samir Haddad",
    "Tove Nygaard",
    "Umberto Greco",
    "Vera Kowalczyk",
    "Wanjiru Kamau",
    "Xenia Papadaki",
    "Yusuf Demir",
    "Zofia Mazur",
    "Anselm Richter",
    "Birgit Sorensen",
    "Cosmin Ionescu",
    "Delphine Marchand",
)
STRANGERS = ("Gustavo Pires", "Ottilie Baumann", "Rafael Quintero", "Signe Lund", "Tomas Havel", "Ulrika Strand")
"""People of whom nothing is said."""
PROJECTS = (
    "Heron",
    "Basalt",
    "Cinder",
    "Driftwood",
    "Ember",
    "Fjord",
    "Granite",
    "Harbour",
    "Juniper",
    "Kestrel",
    "Lantern",
    "Meridian",
    "Nimbus",
    "Orchard",
)
UNKNOWN_PROJECTS = ("Quarry", "Solstice", "Tundra", "Wisteria")
TOWNS = ("Porto", "Ghent", "Tampere", "Bologna", "Leipzig", "Galway", "Aarhus", "Krakow", "Malaga", "Utrecht", "Brno")
TEAMS = ("Support", "Platform", "Billing", "Research", "Design", "Logistics", "Security", "Onboarding")
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
DAYS = tuple(f"{day} {month}" for month in ("March", "May", "August", "October") for day in (4, 11, 17, 23))

PERSONAL = (
    Theme(
        name="home",
        fact_class=IDENTITY,
        sentence="By the way, I live in {value} now.",
        subject="{first}'s home town",
        fact="{name} lives in {value}.",
        asked=("Where does {name} live?", "Which town is the home of {name}?", "In which city is {first} based?"),
        values=TOWNS,
        other_subject="{first}'s place of residence",
        other_fact="The town where {name} has a flat is {value}.",
        changes=True,
        who="Who lives in {value}?",
    ),
    Theme(
        name="allergy",
        fact_class=CONSTRAINT,
        sentence="Please remember that I am allergic to {value}.",
        subject="{first}'s allergy",
        fact="{name} is allergic to {value}.",
        asked=(
            "Which allergies does {name} have?",
            "What must not be in the food of {name}?",
            "What is {first} allergic to?",
        ),
        values=("peanuts", "shellfish", "lactose", "penicillin", "celery", "sesame", "cats"),
        other_subject="{first}'s intolerance",
        other_fact="{name} has an allergy to {value} and must avoid it.",
        who="Who has an allergy to {value}?",
    ),
    Theme(
        name="editor",
        fact_class=PREFERENCE,
        sentence="I write all my code in {value}, nothing else.",
        subject="{first}'s editor",
        fact="{name} writes code in the editor {value}.",
        asked=(
            "Which editor does {name} use?",
            "What program does {first} write code with?",
            "Preferred editing tool of {name}?",
        ),
        values=("Vim", "Emacs", "Helix", "Kakoune", "Sublime", "Zed"),
        other_subject="{first}'s coding tool",
        other_fact="For programming {name} prefers {value}.",
        changes=True,
    ),
    Theme(
        name="drink",
        fact_class=PREFERENCE,
        sentence="No coffee for me in meetings, I always take {value}.",
        subject="{first}'s drink in meetings",
        fact="{name} drinks {value} in meetings instead of coffee.",
        asked=(
            "What does {name} drink in meetings?",
            "Which beverage should be served to {name}?",
            "What is a good drink for {first}?",
        ),
        values=("green tea", "hot chocolate", "ginger ale", "tap water", "apple juice", "mate"),
        other_subject="{first}'s favourite beverage",
        other_fact="The beverage that {name} wants at a meeting is {value}.",
        changes=True,
    ),
    Theme(
        name="seat",
        fact_class=PREFERENCE,
        sentence="When you book a train for me, I want {value}.",
        subject="{first}'s seat on trains",
        fact="{name} wants {value} on trains.",
        asked=(
            "Which seat should be booked on the train for {name}?",
            "Where does {name} like to sit when travelling by train?",
            "Train reservation for {first}: what kind of seat?",
        ),
        values=("an aisle seat", "a window seat", "a quiet coach", "a table seat"),
        other_subject="{first}'s train bookings",
        other_fact="Train tickets of {name} should be for {value}.",
    ),
    Theme(
        name="birthday",
        fact_class=IDENTITY,
        sentence="My birthday is on {value}, in case you wonder.",
        subject="{first}'s birthday",
        fact="{name} has a birthday on {value}.",
        asked=("When is the birthday of {name}?", "On which day was {name} born?", "{first}'s date of birth?"),
        values=DAYS,
        other_subject="{first}'s date of birth",
        other_fact="{name} was born on {value}.",
    ),
    Theme(
        name="badge",
        fact_class=FACT,
        sentence="For the door system: the number of my badge is {value}.",
        subject="{first}'s badge number",
        fact="The badge of {name} has the number {value}.",
        asked=("What is the badge number of {name}?", "Who has the badge {value}?", "Number on {first}'s door badge?"),
        values=tuple(f"B-{4100 + 37 * number}" for number in range(30)),
        other_subject="{first}'s door access",
        other_fact="{name} opens the doors with badge {value}.",
    ),
    Theme(
        name="language",
        fact_class=IDENTITY,
        sentence="I grew up speaking {value} at home.",
        subject="{first}'s native language",
        fact="The native language of {name} is {value}.",
        asked=(
            "What is the mother tongue of {name}?",
            "Which native language does {name} have?",
            "What did {first} speak at home as a child?",
        ),
        values=("Catalan", "Finnish", "Igbo", "Tamil", "Kurdish", "Frisian", "Welsh", "Galician"),
        other_subject="{first}'s mother tongue",
        other_fact="{name} grew up with {value} as mother tongue.",
        who="Who grew up with {value}?",
    ),
    Theme(
        name="pet",
        fact_class=IDENTITY,
        sentence="At home I have {value} who keeps me busy.",
        subject="{first}'s pet",
        fact="{name} has {value} at home.",
        asked=("Which pet does {name} have?", "What animal lives with {name}?", "Does {first} keep a pet at home?"),
        values=("a terrier", "a tortoise", "two canaries", "a rabbit", "a greyhound", "a parrot", "three hens"),
        other_subject="{first}'s animal",
        other_fact="The pet of {name} is {value}.",
    ),
    Theme(
        name="hours",
        fact_class=CONSTRAINT,
        sentence="Please never put a meeting of mine before {value}.",
        subject="{first}'s earliest meeting",
        fact="{name} takes no meetings before {value}.",
        asked=(
            "From when on does {name} take meetings?",
            "What is the earliest time to meet {name}?",
            "How early can {first} be invited?",
        ),
        values=("8:30", "9:15", "10:00", "10:45", "11:30", "13:00"),
        other_subject="{first}'s meeting hours",
        other_fact="Meetings with {name} start at {value} at the earliest.",
        changes=True,
    ),
    Theme(
        name="reports",
        fact_class=PREFERENCE,
        sentence="Send me the monthly figures as {value}, please.",
        subject="{first}'s monthly figures",
        fact="{name} wants the monthly figures as {value}.",
        asked=(
            "In which form does {name} want the monthly figures?",
            "How should reports be sent to {name}?",
            "Format of the figures for {first}?",
        ),
        values=("a spreadsheet", "a PDF", "plain text", "slides", "a chart"),
        other_subject="{first}'s report format",
        other_fact="Reports for {name} are sent as {value}.",
    ),
    Theme(
        name="hobby",
        fact_class=IDENTITY,
        sentence="At weekends I usually go {value}.",
        subject="{first}'s hobby",
        fact="{name} goes {value} at weekends.",
        asked=(
            "What does {name} do at weekends?",
            "Which hobby does {name} have?",
            "How does {first} spend Saturdays and Sundays?",
        ),
        values=("climbing", "rowing", "birdwatching", "sailing", "orienteering", "skating", "fishing"),
        other_subject="{first}'s weekends",
        other_fact="The hobby of {name} is {value}.",
        who="Whose hobby is {value}?",
    ),
    Theme(
        name="manager",
        fact_class=IDENTITY,
        sentence="I report to {value}, so copy my manager on approvals.",
        subject="{first}'s manager",
        fact="{name} reports to {value}.",
        asked=("Who is the manager of {name}?", "To whom does {name} report?", "Who approves requests of {first}?"),
        values=PEOPLE[:6],
        other_subject="{first}'s boss",
        other_fact="The manager of {name} is {value}.",
        changes=True,
    ),
    Theme(
        name="size",
        fact_class=FACT,
        sentence="For the company shirts: I wear size {value}.",
        subject="{first}'s shirt size",
        fact="{name} wears shirts of size {value}.",
        asked=("Which shirt size does {name} wear?", "Size of clothing for {name}?", "What shirt fits {first}?"),
        values=("XS", "XL", "XXL", "medium", "small"),
        other_subject="{first}'s clothing size",
        other_fact="Clothing for {name} is ordered in {value}.",
    ),
)
ABOUT_PROJECTS = (
    Theme(
        name="database",
        fact_class=DECISION,
        sentence="We decided that {first} keeps its data in {value}.",
        subject="{first} database",
        fact="The project {first} keeps its data in {value}.",
        asked=(
            "Which database does {first} use?",
            "Where does the project {first} store its data?",
            "Storage engine of {first}?",
        ),
        values=("Postgres", "MariaDB", "Cassandra", "SQLite", "Redis"),
        other_subject="{first} data storage",
        other_fact="{value} was chosen as the database of {first}.",
        changes=True,
        who="Which projects keep their data in {value}?",
    ),
    Theme(
        name="deadline",
        fact_class=CONSTRAINT,
        sentence="{first} has to be delivered by {value}, that is in the contract.",
        subject="{first} deadline",
        fact="The project {first} must be delivered by {value}.",
        asked=(
            "When must {first} be delivered?",
            "What is the deadline of the project {first}?",
            "Delivery date of {first}?",
        ),
        values=DAYS,
        other_subject="{first} delivery",
        other_fact="The contract of {first} has {value} as its deadline.",
        changes=True,
    ),
    Theme(
        name="budget",
        fact_class=FACT,
        sentence="The budget of {first} is {value} euros.",
        subject="{first} budget",
        fact="The project {first} has a budget of {value} euros.",
        asked=("What is the budget of {first}?", "How much money may {first} spend?", "Which funds does {first} have?"),
        values=tuple(f"{thousands},500" for thousands in range(12, 96, 6)),
        other_subject="{first} money",
        other_fact="{first} may spend {value} euros.",
    ),
    Theme(
        name="stack",
        fact_class=DECISION,
        sentence="{first} is written in {value} from now on, we agreed on that.",
        subject="{first} programming language",
        fact="The project {first} is written in {value}.",
        asked=(
            "Which programming language is {first} written in?",
            "What do developers of {first} program in?",
            "Implementation language of {first}?",
        ),
        values=("Rust", "Kotlin", "Elixir", "Haskell", "Python", "Scala"),
        other_subject="{first} implementation",
        other_fact="{value} is the language in which {first} is implemented.",
        who="Which projects are written in {value}?",
    ),
    Theme(
        name="freeze",
        fact_class=CONSTRAINT,
        sentence="Nothing of {first} may be deployed on a {value}.",
        subject="{first} deployment day",
        fact="The project {first} is never deployed on a {value}.",
        asked=(
            "On which day must {first} not be deployed?",
            "When are deployments of {first} forbidden?",
            "Which weekday is closed for releases of {first}?",
        ),
        values=WEEKDAYS,
        other_subject="{first} releases",
        other_fact="Deployments of {first} on a {value} are forbidden.",
    ),
    Theme(
        name="ticket",
        fact_class=FACT,
        sentence="The audit of {first} has the file number {value}.",
        subject="{first} audit file",
        fact="The audit of the project {first} has the file number {value}.",
        asked=(
            "What is the file number of the audit of {first}?",
            "Which project has the audit file {value}?",
            "Audit reference of {first}?",
        ),
        values=tuple(f"AUD-{711 + 53 * number}" for number in range(14)),
        other_subject="{first} audit reference",
        other_fact="{value} is the audit file of {first}.",
    ),
    Theme(
        name="vendor",
        fact_class=DECISION,
        sentence="For {first} we chose {value} as supplier, because they answer within a day.",
        subject="{first} supplier",
        fact="The project {first} buys from the supplier {value}.",
        asked=(
            "Who supplies the project {first}?",
            "Which supplier was chosen for {first}?",
            "From whom does {first} buy?",
        ),
        values=("Orbelle", "Tradimex", "Fenwick Parts", "Nordhaus", "Lucerna"),
        other_subject="{first} vendor",
        other_fact="{value} was chosen as vendor of {first}.",
        changes=True,
    ),
)
PERIODS = (("January 2023", "March 2024"), ("April 2024", "January 2025"))
"""First and last month of two periods in a team; the third begins in THIRD_PERIOD and lasts."""
THIRD_PERIOD = "February 2025"
TEAM_SAID = "From {start} to {end} I was on the {value} team."
TEAM_SAID_LAST = "Since {start} I have been on the {value} team."
TEAM_SUBJECT = "{first} on the {value} team"
TEAM_FACT = "From {start} to {end} {name} was on the {value} team."
TEAM_FACT_LAST = "Since {start} {name} has been on the {value} team."
TEAM_BEFORE = (
    "On which team was {name} before {start}, when the {after} team came?",
    "Which team was {name} on in {month}, before {after}?",
)
TEAM_AFTER = (
    "On which team was {name} from {month} on, after {before}?",
    "Which team did {name} join in {month}, after the {before} team?",
)

INTRODUCTION = "Hello, this is {name}. I have a few things for you today."
PROJECT_INTRODUCTION = "Hello, this is {name} from the project {first}."
CORRECTION = "Sorry, I mixed that up. Instead: {sentence}"
CHATTER = (
    "I am quite tired today, the night was short.",
    "What a noisy morning, they are drilling next door.",
    "Can you tell me how many bytes a kilobyte has?",
    "What is the capital of Australia again?",
    "Please make the last paragraph of the letter shorter.",
    "Thank you, that was quick.",
    "My train is five minutes late right now.",
    "Could you check the spelling of this sentence: we recieve goods daily?",
)
"""Messages without a fact: passing states, questions, thanks, and what concerns the task alone."""
SECRETS = (
    "The password of the test account is tulip-Harvest-{number}, please use it for this upload.",
    "My card number ends with {number}, the code on the back is {number}.",
    "Use the key sk-demo-{number}{number} for the call.",
)
OFFERS = (
    "Shall I note that you prefer short mails?",
    "You could try a larger screen; many people like that.",
    "I could book the museum tour on Sunday for you.",
)
"""Offers of the assistant that the person leaves without an answer."""
ACKNOWLEDGEMENTS = ("I see.", "All right, thank you.", "Good to know.", "Understood.", "Thanks, got it.")
