"""What a quantization came to, in words."""

from mrcfa.manifest import Quantization


def summary(found: Quantization) -> str:
    total = len(found.blocks) + len(found.fp16)
    share, weights = (found.shares[name] for name in ("encoder", "weights"))
    lines = [
        f"{len(found.blocks)} of {total} blocks in 8 bits: {share:.0%} of the encoder's "
        f"multiply-adds, {weights:.0%} of those with weights",
        f"loss: {found.loss:.2f} points of {found.measure} on {found.frames} frames of "
        f"{found.data} (allowed: {found.allowed_loss:g})",
    ]
    if found.fp16:
        lines.append(f"left in FP16: {', '.join(found.fp16)}")
    return "\n".join(lines)
