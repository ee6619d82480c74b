"""Events on the wire: the envelope, its codec, the type registry, and types made from columns."""
