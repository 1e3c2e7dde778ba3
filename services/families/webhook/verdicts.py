"""The words for what becomes of a delivery (parity: reference surfaces 6.4), in rows, events and answers.

Before: ingress_reader.py, receiving.py. After: recent deliveries, dry runs.
"""

ACCEPTED = "accepted"
ACCEPTED_REPLAY = "accepted_replay"
"""It was taken before."""
REJECTED_BODY = "rejected_body"
REJECTED_SIGNATURE = "rejected_sig"
REJECTED_MAPPING = "rejected_mapping"
REJECTED_RATE = "rejected_rate"
REJECTED_PUBLISH = "rejected_publish"
REJECTED_DELIVERY = "rejected_delivery"
UNRESOLVABLE_SECRET = "unresolvable_secret"
