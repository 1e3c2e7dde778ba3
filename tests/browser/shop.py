"""A small shop whose agents have worked: what the pictures of the page show.

Runs of every state, a tree, a fork, open and answered questions, messages, schedules, deliveries, memory with a past,
versions of an agent, a budget. The model is scripted (scripted_model.py); its gates give turns a length.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.acceptance.installation import HOOK_SECRET
from tests.browser.scripted_model import Gate, ScriptedModel, Step
from tests.browser.site import ADMIN, Caller, Site, frames_of

WHY = "Why did the orders of Monday fail? Find the cause and say what to do."
LIVE = "Write the newsletter for March"
PRICES, STOCK = "Compare our prices with those of last year", "Count what is in stock by shelf"
QUESTIONS: Sequence[tuple[str, str, list[str]]] = (
    (
        "Order new lamps",
        "The supplier has two offers. Which one?",
        ["120 lamps for 1,800 EUR", "60 lamps for 1,020 EUR"],
    ),
    ("Answer the complaint of Mr. Berg", "He wants his money back after 40 days; the rule says 30. What do we do?", []),
    ("Close the till", "The till is 12.40 EUR short. Close it anyway?", ["close it", "count again"]),
)
SHORT = (
    ("Translate the sign at the door", "»Bitte klingeln« means “Please ring”."),
    ("Is order 4711 paid?", "Yes: paid on Tuesday by card."),
    ("Suggest a name for the green lamp", "*Fern*: short, and nobody else has it."),
    ("Which lamps are below ten pieces?", "Three: *Dune*, *Pebble* and *Tall Birch*."),
    ("Summarise the reviews of last week", "42 reviews, 38 of them good; two mention slow delivery."),
)
ANSWER = """The orders failed because **the import reads prices as text**.

1. `shop/orders.py:4` starts a shell with the file name from the order. A name with a space ends the command there.
2. The 17 orders of Monday came from the new supplier, whose file names have spaces.
3. Nothing was charged: `card.py` is called only after the import.

| step | orders | state |
|---|---:|---|
| received | 17 | kept in the inbox |
| imported | 0 | failed |
| charged | 0 | – |

```python
subprocess.run([*command, name], check=True)   # instead of a shell
```

I have written the list of the 17 orders to `monday.md`, and asked a colleague to check the prices."""
DRAFT = """## Light in March

The days become longer, and so does our list of new lamps. *Tall Birch* is back, and *Dune* comes in a third colour.

- **Until the 15th** every table lamp comes with a second bulb.
- On the **21st** the workshop shows how a shade is made by hand

And if you bring an old lamp,"""


@dataclass(frozen=True, slots=True)
class Shop:
    """Ids for the addresses of pictures."""

    why: str
    fork: str
    live: str
    failed: str
    schedule: str


def open_shop(site: Site, model: ScriptedModel) -> Shop:
    """Let the agents work, and return when everything is there; `LIVE` is in the middle of its answer then."""
    caller = site.client(ADMIN)
    write_scripts(model)
    name_clerk(caller)
    admit(caller)
    remember(caller)
    why = caller.finish(WHY, user_id="mia", metadata={"ticket": "4711"})
    fork = fork_of(caller, why, model)
    for number, (prompt, _) in enumerate(SHORT * 3):
        caller.finish(
            prompt, user_id=("mia", "tom", "ines")[number % 3], agent="clerk" if number % 4 == 1 else "analyst"
        )
    caller.finish("Review the source code", agent="reviewer", user_id="tom")
    caller.finish("Hello", agent="resilient", user_id="ines")
    failed = caller.finish("Check the payment of order 4712", agent="unlucky", user_id="tom")
    sleeping = [caller.start("Wait for the delivery", agent="sleeper", user_id="ines") for _ in range(2)]
    caller.ask("POST", f"/v1/runs/{sleeping[0]}/pause", json={"reason": "the warehouse is closed until 14:00"})
    agent_id = caller.ask("GET", f"/v1/runs/{sleeping[1]}")["agent_id"]
    caller.ask("POST", f"/v1/agents/{agent_id}/cancel", json={"reason": "ordered twice", "run_id": sleeping[1]})
    for prompt, _, _ in QUESTIONS:
        caller.start(prompt, user_id="mia")
    trigger(caller)
    schedule = plan(caller)
    caller.ask(
        "PUT",
        "/v1/_limits",
        json={"scope": "user", "scope_id": "mia", "soft_limit_micros": 60_000, "hard_limit_micros": 500_000},
    )
    caller.ask("PUT", "/v1/_limits", json={"scope": "tenant", "soft_limit": 60_000, "hard_limit": 400_000})
    live = caller.start(LIVE, user_id="mia")
    return Shop(why=why, fork=fork, live=live, failed=failed, schedule=schedule)


def write_scripts(model: ScriptedModel) -> None:
    model.play(
        PRICES,
        [
            Step(say=["I read both lists.\n", Gate(0.9)], calls=[("Read", {"path": "shop/pay/card.py"})]),
            Step(say=[Gate(0.6), "Two prices have changed: *Dune* by 5 %, *Pebble* by 8 %."]),
        ],
    )
    model.play(STOCK, [Step(say=[Gate(1.4), "Shelf 1 has 12 lamps, shelf 2 has 40, shelf 3 is empty."])])
    together = {
        "op": "parallel_spawn",
        "spawns": [{"name": "analyst", "prompt": PRICES}, {"name": "analyst", "prompt": STOCK}],
    }
    plan_of = {"op": "set", "scope": "user", "key": "incidents/monday", "value": {"cause": "shell=True", "orders": 17}}
    found = {"path": "monday.md", "volume": "out", "content": "# Orders of Monday\n\n17 orders wait for the import.\n"}
    model.play(
        WHY,
        [
            Step(
                say=["I look at what the shop runs first.\n", Gate(0.7)],
                calls=[("Glob", {"pattern": "**/*.py"}), ("Grep", {"pattern": "shell=True", "output_mode": "content"})],
            ),
            Step(
                say=["The import starts a shell. I read it, and the file of the supplier.\n", Gate(0.5)],
                calls=[("Read", {"path": "shop/orders.py"}), ("Read", {"path": "inbox/supplier 7.csv"})],
            ),
            Step(say=["Two colleagues check prices and stock meanwhile.\n", Gate(0.4)], calls=[("Agent", together)]),
            Step(say=["I keep what I found.\n", Gate(0.6)], calls=[("Memory", plan_of), ("Write", found)]),
            Step(say=[Gate(0.8), ANSWER]),
        ],
    )
    for prompt, answer in SHORT:
        model.play(prompt, [Step(say=[Gate(0.15), answer])])
    for prompt, question, options in QUESTIONS:
        ask = {
            "op": "ask",
            "question": question,
            **({"options": options} if options else {}),
            "context": f"From: {prompt}",
        }
        model.play(
            prompt, [Step(say="I need a decision.", calls=[("Interruption", ask)]), Step(say="Thank you, done.")]
        )
    model.play(
        LIVE,
        [
            Step(say=["I look at what is new.\n", Gate(0.3)], calls=[("Glob", {"pattern": "shop/**"})]),
            Step(say=[DRAFT, "\n", Gate()]),
        ],
    )


def name_clerk(caller: Caller) -> None:
    """Make three versions of an agent: the second is active."""
    clerk = {
        "provider": "lab",
        "model": "lab-1",
        "tools": ["Read", "Glob"],
        "system_prompt": "You answer customers. Be friendly.",
    }
    operate = "/v1/_agentdef"
    first = caller.ask(
        "POST",
        operate,
        json={"op": "create", "name": "clerk", "overlay": clerk, "description": "answers customers", "promote": True},
    )
    brief = {"system_prompt": "You answer customers. Be friendly, and brief: at most three sentences.\nName the order."}
    second = caller.ask(
        "POST",
        operate,
        json={
            "op": "fork",
            "name": "clerk",
            "parent_def_id": first["def_id"],
            "overlay": brief,
            "description": "customers do not read long answers",
            "promote": True,
        },
    )
    caller.ask(
        "POST",
        operate,
        json={
            "op": "fork",
            "name": "clerk",
            "parent_def_id": second["def_id"],
            "overlay": {"max_tokens": 400, "tools": ["Read"]},
            "description": "a trial with a smaller bound",
            "promote": False,
        },
    )


def admit(caller: Caller) -> None:
    """Register the staff, give one of them tokens, and store what the import needs."""
    for subject, name, mode in (("mia", "Mia Larsen", "tenant"), ("tom", "Tom Okafor", "isolated")):
        caller.ask("POST", "/v1/_users", json={"subject": subject, "display_name": name, "access_mode": mode})
    for name in ("till", "laptop"):
        made = caller.ask("POST", "/v1/_users/mia/tokens", json={"name": name})
    caller.ask("DELETE", f"/v1/_users/mia/tokens/{made['def_id']}")
    scopes = ["runs:create", "runs:read"]
    for tenant, name in (("acme", "nightly-import"), ("acme", "website"), ("globex", "website")):
        body = {"op": "create", "name": name, "tenant_id": tenant, "scopes": scopes}
        caller.ask("POST", "/v1/_operatortokendef", json=body)
    caller.ask("POST", "/v1/_operatortokendef", json={"op": "rotate", "name": "nightly-import"})
    for name, ends in (("LUMEN_API_KEY", "2027-01-31T00:00:00Z"), ("PARCEL_TOKEN", None)):
        body = {"op": "create", "name": name, "value": "planted", **({"expires_at": ends} if ends else {})}
        caller.ask("POST", "/v1/_credentialdef", json=body)


def remember(caller: Caller) -> None:
    path = "/v1/_memory/scopes/user/mia/keys"
    for key, values in {
        "orders/4711": [
            {"state": "received"},
            {"state": "paid", "by": "card"},
            {"state": "sent", "by": "card", "parcel": "DE-88"},
        ],
        "orders/4712": [{"state": "received"}],
        "preferences": [{"language": "de", "tone": "friendly"}, {"language": "de", "tone": "brief"}],
        "suppliers/7": [{"name": "Lumen & Co", "files": "names with spaces"}],
    }.items():
        for value in values:
            caller.ask("PUT", f"{path}/{key.replace('/', '%2F')}", json={"value": value})
    for scope, name, key in (("agent", "analyst", "rules"), ("user", "tom", "shelf"), ("user", "ines", "route")):
        caller.ask("PUT", f"/v1/_memory/scopes/{scope}/{name}/keys/{key}", json={"value": {"kept": True}})


def fork_of(caller: Caller, why: str, model: ScriptedModel) -> str:
    """Fork before the last turn with a wish of the person's, and return the fork's id."""
    model.play(
        "Say it in two sentences.",
        [Step(say=[Gate(0.4), "A file name with a space ends the shell's command. Start it without a shell."])],
    )
    answer = caller.post(
        f"/v1/runs/{why}/fork",
        params={"ids": 1},
        json={"at": last_call(caller, why), "prompt": "Say it in two sentences."},
    )
    assert answer.is_success, answer.text
    return next(str(frame["run_id"]) for frame in frames_of(answer.text) if "run_id" in frame)


def last_call(caller: Caller, run_id: str) -> int:
    """Return the seq before the run's last call of the model."""
    events = caller.ask("GET", "/v1/events", params={"run_id": run_id, "limit": 1000})["events"]
    return max(int(event["seq"]) for event in events if event["type"] == "ModelCallRequested") - 1


def trigger(caller: Caller) -> None:
    for number in range(4):
        deliver(
            caller,
            "triage",
            {"title": f"The lamp of order {4711 + number} flickers", "sender": "mia"},
            f"delivery-{number}",
        )
    deliver(caller, "triage", {"title": "The lamp of order 4711 flickers", "sender": "mia"}, "delivery-0")
    deliver(caller, "triage", {"title": "Cheap watches"}, "delivery-9", secret="guessed")
    for text in ("parcel DE-88 has arrived", "shelf 3 is empty", "two returns at the counter"):
        caller.ask("POST", "/v1/_channels/acceptance%2Freports/publish", json={"payload": {"text": text, "by": "tom"}})


def deliver(
    caller: Caller, webhook: str, body: Mapping[str, Any], delivery_id: str, *, secret: str = HOOK_SECRET
) -> None:
    raw = json.dumps(body).encode()
    signature = hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()
    headers = {
        "content-type": "application/json",
        "x-hub-signature-256": f"sha256={signature}",
        "x-github-delivery": delivery_id,
    }
    caller.post(f"/v1/_webhooks/{webhook}", content=raw, headers=headers)


def plan(caller: Caller) -> str:
    """Make schedules, let one fire twice, and return its name."""
    for name, times, prompt in (
        ("nightly-stock", "0 3 * * *", "Count what is in stock by shelf"),
        ("monday-report", "0 9 * * 1", "Summarise the reviews of last week"),
        ("hourly-payments", "@hourly", "Is order 4711 paid?"),
    ):
        overlay = {
            "agent": "analyst",
            "schedule": times,
            "timezone": "Europe/Berlin",
            "enabled": True,
            "user_id": "mia",
            "prompt": prompt_of(prompt),
        }
        caller.ask("POST", "/v1/_scheduledef", json={"op": "create", "name": name, "overlay": overlay, "promote": True})
    rows = {
        row["name"]: row for row in caller.ask("GET", "/v1/_schedules/list-all", params={"with_state": True})["entries"]
    }
    for name in ("monday-report", "hourly-payments", "monday-report"):
        caller.post(f"/v1/_schedules/{rows[name]['active_def_id']}/run-now")
    return "monday-report"


def prompt_of(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "trusted-text", "text": text}]}]
