#!/usr/bin/env python3
"""Judges each vector beside it as docs/spec/federation.md says, without any code of Roster's. See README.md."""
import base64, hashlib, json, pathlib, re, sys
from cryptography import exceptions, x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils
from cryptography.hazmat.primitives.hashes import SHA256
LISTED = {"adpage+jws": "v iss epoch aud from to at iat d", "adhead+jws": "v iss epoch tip at size root keys iat",
          "adkeys+jws": "v iss epoch seq exp mesh revoked formats keys", "adattest+jws": "domain node jwk time",
          "adrec+sd-jwt": "v format iss uid op epoch rev prev iat since log reg doc"}
DIGEST = {"put": "u r o h m x l", "renew": "u r o h m x l", "end": "u r o h", "drop": "u r o"}
PROOFS, PARTS = ("proof", "staple", "evidence"), {"header": "format", "json": "format", "record": "format", "key_unknown": "key", "key_revoked": "key"}
class Refused(ValueError): pass
def need(condition, verdict="json"):
    if not condition: raise Refused(verdict)
def guard(verdict, action, *args):
    try: return action(*args)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, StopIteration, exceptions.InvalidSignature): raise Refused(verdict)
def unb64(raw): return base64.urlsafe_b64encode(raw).decode().rstrip("=")
def b64(text):  # base64url in its one form
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return need(text and unb64(raw) == text) or raw
def digest(data): return hashlib.sha256(data).digest()
def is_hash(text): return len(b64(text)) == 32
def compact(value): return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
def unique(pairs): return need(len(dict(pairs)) == len(pairs)) or dict(pairs)
decoder = json.JSONDecoder(object_pairs_hook=unique, parse_constant=lambda name: need(False))
def strict(text):  # JSON without a name twice
    value = decoder.decode(text)
    return need(not re.search("[\ud800-\udfff]", compact(value))) or value
def depth(value):
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, inner), default=0) if isinstance(value, (dict, list)) else 0
def listed(value, names): return compact({n: value[n] for n in names.split() if n in value or n not in ("prev", "formats")})[:-1]
def kid(key): return unb64(digest(compact(key["jwk"]).encode()))
def ed(key): return ed25519.Ed25519PublicKey.from_public_bytes(b64(key["jwk"]["x"]))
def grown(text, value, names):  # listed members in their one encoding, ext in any, crit; returns crit
    at, crit = len(listed(value, names)), []
    need(text.startswith(listed(value, names)))
    if text.startswith(',"ext":{', at):
        ext, end = decoder.raw_decode(text, at + 7)
        need(ext and depth(ext) <= 8 and len(text[at + 7:end].encode()) <= 4096)
        at = end
        if text.startswith(',"crit":', at):
            crit, end = decoder.raw_decode(text, at + 8)
            need(crit and compact(crit) == text[at + 8:end] and len(set(crit)) == len(crit) and set(crit) <= set(ext))
            at = end
    return need(text[at:] == "}") or crit
def payload(typ, text):  # returns it, and what of it must be understood: a format or names in crit
    value = strict(text)
    if typ in ("adpage+jws", "adhead+jws", "adrec+sd-jwt"):  # these members are the same in every format
        first, form = ("v format iss uid op epoch", "format") if typ == "adrec+sd-jwt" else ("v iss epoch", "v")
        need(text.startswith(listed(value, first)) and re.fullmatch("spiffe://[a-z0-9._-]+", value["iss"]))
        need(type(value[form]) is int and value[form] > 0 and (form == "v" or value["v"] == 1))
        if value[form] != 1: return value, [value[form]]
    crit = grown(text, value, LISTED[typ])
    need(all(type(value[n]) is int and value[n] >= 0 for n in "epoch from to at iat tip size seq exp rev since log time".split() if n in value))
    if typ == "adpage+jws":
        revisions = [value["from"]] + [d["r"] for d in value["d"]]
        need(revisions == sorted(set(revisions)) and revisions[-1] <= value["to"] <= value["at"] and value["from"] < value["to"])
        for d in value["d"]: need(" ".join(d) == DIGEST[d["o"]] and all(is_hash(d[n]) for n in "hm" if n in d))
    elif typ == "adhead+jws": need(value["tip"] <= value["at"] and is_hash(value["root"]) and is_hash(value["keys"]))
    elif typ == "adkeys+jws":
        need(value["v"] == 1 and not crit and len(set(map(kid, value["keys"]))) == len(value["keys"]))
        need(all(f[0] == 1 and len(f) > 1 and f == sorted(set(f)) for f in value.get("formats", {}).values()))
        need(all(k["node"].startswith(value["iss"] + "/") for k in value["keys"]) and value.get("formats", 1))
    elif typ == "adrec+sd-jwt":
        reg, doc = (value[n].get("_sd", []) for n in ("reg", "doc"))
        need(all(s == sorted(set(s)) and all(map(is_hash, s)) for s in (reg, doc)) and not set(reg) & set(doc))
        need(value["op"] in ("put", "end") and (value["op"] == "end") == (not reg + doc))
    return value, crit
def split(jws, typ, names=("alg", "kid", "typ")):  # form, header, payload
    raw = guard("format", lambda: need(jws.count(".") == 2) or [b64(part) for part in jws.split(".")])
    header = guard("header", lambda: strict(raw[0].decode()))
    need(compact(header).encode() == raw[0] and sorted(header) == sorted(names) and header["typ"] == typ, "header")
    need("kid" not in names or header["alg"] == "EdDSA" and guard("header", is_hash, header["kid"]), "header")
    value, crit = guard("json", lambda: payload(typ, raw[1].decode()))
    return header, value, crit, raw[2], jws.rpartition(".")[0].encode()
def attested(jws, key=None):  # a node's SVID says that a signing key is the node's
    header, value, crit, signature, text = split(jws, "adattest+jws", ("alg", "typ", "x5c"))
    need(not crit, "unsupported")
    leaf = guard("header", lambda: x509.load_der_x509_certificate(base64.b64decode(header["x5c"][0], validate=True)))
    uris = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type
    key = key or next(k for k in DOC["keys"] if k["node"] == value["node"])
    need([value["node"]] == uris(x509.UniformResourceIdentifier) == [key["node"]], "attestation")
    need(value["jwk"] == key["jwk"] and value["time"] <= AT + 60, "attestation")
    guard("attestation", CA.public_key().verify, leaf.signature, leaf.tbs_certificate_bytes)  # Ed25519, one level
    need(header["alg"] == ("EdDSA" if isinstance(leaf.public_key(), ed25519.Ed25519PublicKey) else "ES256"), "header")
    if header["alg"] == "EdDSA": return guard("signature", leaf.public_key().verify, signature, text)
    r, s = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
    need(len(signature) == 64 and 2 * s < 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551, "signature")
    guard("signature", leaf.public_key().verify, utils.encode_dss_signature(r, s), text, ec.ECDSA(SHA256()))
def verified(jws, typ, doc=None, known=()):  # the order of rule G6; a key document is signed by one of its own keys
    header, value, crit, signature, text = split(jws, typ)
    need(doc or value["exp"] > AT, "expired")
    need(header["kid"] not in (doc or value)["revoked"], "key_revoked")
    key = guard("key_unknown", next, (k for k in (doc or value)["keys"] if kid(k) == header["kid"]))
    guard("key_unknown", lambda: attested(key["attestations"][-1], key))
    guard("signature", ed(key).verify, signature, text)
    need(set(crit) <= set(known), "unsupported")
    return value
def record(text, doc, known=()):  # returns the statement with h and m
    jws, *shown = text.split("~")
    need(shown and shown.pop() == "", "format")
    value, named = verified(jws, "adrec+sd-jwt", doc, known), {"reg": ["_sd", "..."], "doc": ["_sd", "..."]}
    for part in shown:
        salt, name = guard("record", lambda: (lambda salt, name, _: (b64(salt), name))(*strict(b64(part).decode())))
        place = next((n for n in named if unb64(digest(part.encode())) in value[n].get("_sd", [])), None)
        need(place and name not in named[place] and len(salt) == 16, "record")
        named[place].append(name)
    need({"agent", "kind"} <= set(named["reg"]) if value["op"] == "put" else not shown, "record")
    need("owner" in named["reg"] or not set("registrant registered_by transferred_by imported_from".split()) & set(named["reg"]), "record")
    return value, unb64(digest(b64(jws.split(".")[1]))), unb64(digest("~".join(sorted(shown)).encode()))
def std64(text): return need(base64.b64encode(raw := base64.b64decode(text, validate=True)).decode() == text) or raw
def is_name(name): return re.fullmatch(r"[^\s+\0-\x1f]+", name)  # of a key
def note(text):  # C2SP signed-note and tlog-checkpoint: the text, and its lines by the name and the id of their keys
    body, _, tail = text.partition("\n\n")
    parts = [re.fullmatch("— ([^ ]+) ([^ ]+)", line).groups() for line in tail.removesuffix("\n").split("\n")]
    lines = {(name, std64(s)[:4]): need(is_name(name) and len(std64(s)) > 4) or std64(s)[4:] for name, s in parts}
    need(tail.endswith("\n") and len(lines) == len(parts) <= 64 and not re.search("[\0-\x09\x0b-\x1f]", text))
    head = re.fullmatch("[^\n]+\n(0|[1-9][0-9]*)\n([^\n]{44})(\n[^\n]+)*", body)
    return need(int(head[1]) < 1 << 63 and len(std64(head[2])) == 32) or (body + "\n", lines)
def vkey_of(vkey, kind):  # C2SP signed-note
    name, number, key = vkey.split("+", 2)
    need(is_name(name) and std64(key)[0] == kind and len(std64(key)) == 33)
    return need(digest(name.encode() + b"\n" + std64(key))[:4].hex() == number) or (name, bytes.fromhex(number), std64(key)[1:])
def policy_of(text):  # C2SP tlog-policy: logs, witnesses by their names, groups in order, quorum
    logs, witnesses, groups, quorum, free = [], {}, [], [], set()
    need(text.endswith("\n") and not re.search("[\0-\x08\x0b-\x1f\x7f]", text))
    for word, *rest in (line.split() for line in text[:-1].split("\n") if line.strip(" \t") and line.split()[0][0] != "#"):
        defined = set(witnesses) | {name for name, *_ in groups}
        if word == "log": logs.append(need(len(rest) < 3) or vkey_of(rest[0], 1))
        elif word == "witness": witnesses[rest[0]] = need(len(rest) < 4) or vkey_of(rest[1], 4)
        elif word == "group":
            least = {"any": 1, "all": len(rest) - 2}.get(rest[1]) or int(rest[1])
            groups.append(need(1 <= least <= len(rest) - 2 and set(rest[2:]) <= free) or (rest[0], least, rest[2:]))
            free -= set(rest[2:])
        else: quorum.append(need(word == "quorum" and len(rest) == 1 and rest[0] in defined | {"none"}) or rest[0])
        if word in ("witness", "group"): need(rest[0] not in defined | {"none"}) or free.add(rest[0])
    for keys in (logs, witnesses.values()): need(len({key for _, _, key in keys}) == len(keys))
    return need(len(quorum) == 1) or (logs, witnesses, groups, quorum[0])
def checkpoint(text, policy):  # whether a policy believes a checkpoint
    (logs, witnesses, groups, quorum), (body, lines) = guard("format", policy_of, policy), guard("format", note, text)
    by = [guard("signature", ed_raw(key).verify, lines[name, id], body.encode()) or name for name, id, key in logs
          if name == body.split("\n")[0] and (name, id) in lines]
    has = {n for n, (name, id, key) in witnesses.items() if (name, id) in lines and not guard("signature", seen, key, lines[name, id], body)}
    need(by or not logs, "key")
    for name, least, members in groups: has |= {name} if len(has & set(members)) >= least else set()
    need(quorum == "none" or quorum in has, "witness")
def ed_raw(key): return ed25519.Ed25519PublicKey.from_public_bytes(key)
def seen(key, line, body):  # C2SP tlog-cosignature
    when = int.from_bytes(line[:8], "big")
    ed_raw(key).verify(line[8:], f"cosignature/v1\ntime {when}\n{body}".encode())
    need(0 < when <= 253402300799)
def cosigned(p, vkey):
    (body, lines), (name, number, key) = note(p["checkpoint"]), vkey_of(vkey, 4)
    seen(key, lines[name, number], body)
def logged(p, value, h, doc):  # C2SP tlog-checkpoint and signed-note; RFC 9162, 2.1.3.2
    body, lines = note(p["checkpoint"])
    origin, size, root = body.split("\n")[:3]
    by = [(k, (origin, digest(origin.encode() + b"\n\1" + b64(k["jwk"]["x"]))[:4])) for k in doc["keys"]]
    need([ed(k).verify(lines[name], body.encode()) for k, name in by if name in lines])
    at, last, node = p["index"], int(size) - 1, digest(b"\0\1" + b64(h))
    for part in map(b64, p["path"]):
        left = at % 2 or at == last
        node = digest(b"\1" + (part + node if left else node + part))
        while left and at and at % 2 == 0: at, last = at // 2, last // 2
        at, last = at // 2, last // 2
    need(p["index"] == value["log"] and last == 0 and node == base64.b64decode(root) and origin.startswith(value["iss"][9:]))
def proof(text, witnesses=(), staple=False, at=0):
    p, at = guard("format", strict, text), at or AT
    need({"record", "page"} <= set(p) <= set("record page keys attestation bundle checkpoint index path ext crit".split()), "format")
    need(("keys" in p) != ("attestation" in p) and not {"attestation", "bundle"} <= set(p) and not (staple and len(text.encode()) > 6144), "format")
    need(("checkpoint" in p) == ("index" in p) and p.get("ext", 1) and set(p.get("crit", [])) <= set(p.get("ext", {})), "format")
    need("crit" not in p, "unsupported")
    if "keys" in p: doc = verified(p["keys"], "adkeys+jws")
    else:  # the key that an attestation names is the only one
        only = guard("format", lambda: split(p["attestation"], "adattest+jws", ("alg", "typ", "x5c"))[1])
        doc = {"revoked": [], "keys": [{"jwk": only["jwk"], "node": only["node"], "attestations": [p["attestation"]]}]}
    page, (value, h, m) = verified(p["page"], "adpage+jws", doc), record(p["record"], doc)
    named = next((d for d in page["d"] if d["u"] == value["uid"]), {})
    need((named.get("h"), named.get("m")) == (h, m), "format")
    need("x" in named and page["iat"] <= at + 60 and value["iss"] == page["iss"] == doc.get("iss", page["iss"]), "format")
    need(not staple or len(page["d"]) == 1 and (page["from"], page["to"]) == (named["r"] - 1, named["r"]), "format")
    need(at < named["x"] and (not staple or at < page["iat"] + 1800), "expired")
    if "checkpoint" in p: guard("inclusion", logged, p, value, h, doc)
    for vkey in witnesses: guard("witness", cosigned, p, vkey)
def evidence(text):  # two structures that an honest domain can't both have signed
    e = guard("format", strict, text)
    offence, pages, keys = guard("format", lambda: (e["offence"], e.get("pages", []), e["keys"]))
    need((offence, len(pages)) in (("E1", 2), ("E3", 0)) and len(keys) in ((1, 2) if pages else (2,)), "format")
    parts = [split(t, "adkeys+jws") for t in keys] + [split(t, "adpage+jws") for t in pages]
    docs = [part[1] for part in parts[:len(keys)]]
    by = [next((k for d in docs for k in d["keys"] if kid(k) == part[0]["kid"]), None) for part in parts]
    for key in by:
        need(key and not any(kid(key) in d["revoked"] for d in docs), "key_unknown")
        guard("key_unknown", lambda: attested(key["attestations"][-1], key))
    for key, (_, _, crit, signature, signed) in zip(by, parts):
        guard("signature", ed(key).verify, signature, signed)
        need(not crit, "unsupported")
    (a, b), bodies = (part[1] for part in parts[-2:]), [part[4].split(b".")[1] for part in parts[-2:]]
    need(all(part[1]["iss"] == a["iss"] for part in parts) and a["epoch"] == b["epoch"], "format")
    if offence == "E3": need(a["seq"] == b["seq"] and bodies[0] != bodies[1], "format")
    else: need(a["aud"] == b["aud"] and any((x["u"], x["r"]) == (y["u"], y["r"]) and x != y for x in a["d"] for y in b["d"]), "format")
    need(False, "equivocation")
def verdict(file, text, critical=(), h="", m="", witnesses=(), at=0, policy="", **_):
    try:
        if file == "evidence": evidence(text)
        elif file == "checkpoint": checkpoint(text, policy)
        elif file in PROOFS: proof(text, witnesses, file == "staple", at)
        elif file == "attestation": attested(text)
        elif file == "record": need(record(text, DOC, critical)[1:] == (h, m), "h or m")
        else: verified(text, {"page": "adpage+jws", "head": "adhead+jws"}.get(file, "adkeys+jws"), None if "key" in file else DOC, critical)
    except Refused as refused: return PARTS.get(str(refused), str(refused)) if file in PROOFS else str(refused)
    return "ok"
HERE = pathlib.Path(__file__).parent
KEYS = json.loads((HERE / "keys.json").read_text())
AT, CA = KEYS["at"], x509.load_der_x509_certificate(base64.b64decode(KEYS["authorities"][0]))
DOC = verified(KEYS["key_document"], "adkeys+jws")
vectors = [(f.stem, v) for f in sorted(HERE.glob("*.json")) if f.stem != "keys" for v in json.loads(f.read_text())["vectors"]]
wrong = [f"{f}: {v['name']}: want {v['verdict']}, got {verdict(f, **v)}" for f, v in vectors if verdict(f, **v) != v["verdict"]]
sys.exit(print(*wrong, f"{len(vectors)} vectors, {len(wrong)} wrong", sep="\n") or bool(wrong) or not vectors)
