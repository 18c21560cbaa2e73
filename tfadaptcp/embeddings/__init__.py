"""What tfadaptcp knows of TensorFlow Recommenders Addons (TFRA)."""


def install() -> None:
    """Makes this process's TFRA trackable and safe under parameter servers, once."""
    from tfadaptcp.embeddings import export, shadow, tracking

    tracking.install()
    export.install()
    shadow.install()
