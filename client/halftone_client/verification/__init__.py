"""Whether a bundle is whole, and signed by whom: offline, from its bytes alone."""

from halftone_client.verification.bundle import Verified, verify
from halftone_client.verification.faults import BundleFault, CannotVerify

__all__ = ["BundleFault", "CannotVerify", "Verified", "verify"]
