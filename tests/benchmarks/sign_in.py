"""What tokens of identity providers cost: `make bench-sign-in`.

    python -m tests.benchmarks.sign_in [--tokens 2000]

In one process, without a stack: microseconds to identify the caller of a request, by kind of token. The first request
with a token checks its signature, and further ones find it by its hash.
"""

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.identity_providers.page_sessions import PageSessions
from loomlog.connectors.identity_providers.providers import IdentityProviders
from loomlog.services.application.authentication import Authenticator
from loomlog.services.core.refusals import Refused
from tests.benchmarks.closed_loop import percentile
from tests.benchmarks.machine import machine
from tests.connectors.identity_providers.provider import KEYS, Provider, block
from tests.services.application.world import READER, tokens


def measure(identify: Callable[[str], object], presented: Sequence[str]) -> tuple[float, float]:
    """Return p50 and p99 in microseconds."""
    taken: list[float] = []
    for token in presented:
        began = time.perf_counter()
        identify(f"Bearer {token}")
        taken.append((time.perf_counter() - began) * 1e6)
    taken.sort()
    return percentile(taken, 0.5), percentile(taken, 0.99)


def refused(gate: Authenticator) -> Callable[[str], object]:
    def identify(header: str) -> object:
        try:
            return gate.identify(header)
        except Refused as refusal:
            return refusal

    return identify


async def run(count: int) -> None:
    print(machine())
    print(f"{'token':<34}{'p50 us':>10}{'p99 us':>10}")
    for algorithm in KEYS:
        provider = Provider(keys={"one": KEYS[algorithm][0]})
        blocks = {"company": block()}
        sessions = PageSessions(SecretKey(keys=(b"k" * 32,)), blocks)
        providers = IdentityProviders(blocks, provider.fetch, sessions=sessions)
        gate = Authenticator(tokens(), providers=providers)
        made = [provider.token(algorithm=algorithm, jti=str(number)) for number in range(count)]
        await providers.prepare(made[0])
        forged = [f"{token[:-8]}AAAAAAAA" for token in made]
        rows = {
            f"{algorithm}, first request": measure(gate.identify, made),
            f"{algorithm}, further requests": measure(gate.identify, made),
            f"{algorithm}, wrong signature": measure(refused(gate), forged),
        }
        if algorithm == "RS256":
            session = sessions.begin("company", provider.claims(), now_s=time.time())
            rows["session of the page"] = measure(gate.identify, [session] * count)
            rows["token of a file, beside providers"] = measure(gate.identify, [f"{READER.name}-token"] * count)
            alone = Authenticator(tokens())
            rows["token of a file"] = measure(alone.identify, [f"{READER.name}-token"] * count)
        for name, (half, most) in rows.items():
            print(f"{name:<34}{half:>10.1f}{most:>10.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=2_000)
    asyncio.run(run(parser.parse_args().tokens))
