"""Bodies of requests, as models that check them."""
