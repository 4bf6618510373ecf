"""What a PDF or a film says of itself where nothing of it is drawn: title, description, and the view that it shows, as XMP."""

from __future__ import annotations

import re
from html import escape

from circuitlab.session_files.in_pictures.limits import ELEMENT, NAMESPACE

# Readers show it among a document's properties.
_XMP = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
<rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:xmp="http://ns.adobe.com/xap/1.0/">
<dc:title><rdf:Alt><rdf:li xml:lang="x-default">{}</rdf:li></rdf:Alt></dc:title>
<dc:description><rdf:Alt><rdf:li xml:lang="x-default">{}</rdf:li></rdf:Alt></dc:description>
<xmp:CreatorTool>CircuitLab</xmp:CreatorTool>
</rdf:Description>{}</rdf:RDF></x:xmpmeta>
<?xpacket end="w"?>"""
_XMP_VIEW = """<rdf:Description rdf:about="" xmlns:circuitlab="{}"><circuitlab:{}>{}</circuitlab:{}></rdf:Description>"""
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # characters that XML 1.0 has no place for


def xmp_packet(title: str, description: str, view: str = "") -> bytes:
    """The packet. `view`: the text that says what is shown (`pictures.export`), "" none."""
    own = _XMP_VIEW.format(NAMESPACE, ELEMENT, escape(view), ELEMENT) if view else ""
    packet = _XMP.format(escape(title), escape(description), own)
    return _FORBIDDEN.sub("\ufffd", packet).encode("utf-8", "replace")
