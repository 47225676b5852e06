"""Verifies a proof file or a staple of Roster offline: verify.py FILE --bundle PEM [--witness VKEY]... [--staple] [--at SECONDS].
Python's library has neither Ed25519 nor certificates: OpenSSL 3 verifies both, as a program of its own."""
import argparse, base64, hashlib, json, pathlib, re, subprocess, tempfile, time
def need(ok, why): return None if ok else (_ for _ in ()).throw(ValueError(why))
def b64(text, alt=b"-_"):  # base64 in its one encoding; base64url has no padding
    padded = text + "=" * (-len(text) % 4) if alt == b"-_" else text; raw = base64.b64decode(padded, alt, validate=True)
    return need(base64.b64encode(raw, alt).decode() == padded and (alt != b"-_" or "=" not in text), "another encoding") or raw
sha, url, compact = lambda *parts: hashlib.sha256(b"".join(parts)).digest(), lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("="), lambda v: json.dumps(v, separators=(",", ":"), ensure_ascii=False)
kid, unique = lambda key: url(sha(compact(key["jwk"]).encode())), lambda pairs: need(len(dict(pairs)) == len(pairs), "a name twice") or dict(pairs)
pem, der = lambda raw, kind: f"-----BEGIN {kind}-----\n{base64.encodebytes(raw).decode()}-----END {kind}-----\n", lambda tag, raw: bytes([tag, len(raw)]) + raw
def openssl(*args, **files):  # runs it on files with these contents; returns what it prints, "" if it fails
    with tempfile.TemporaryDirectory() as d:
        for name, data in files.items(): pathlib.Path(d, name).write_bytes(data.encode() if isinstance(data, str) else data)
        return "" if (done := subprocess.run(["openssl", *args], cwd=d, capture_output=True, text=True)).returncode else done.stdout
def holds(key, message, s, *digest): return openssl("pkeyutl", "-verify", "-pubin", "-inkey", "key", "-rawin", *digest, "-in", "m", "-sigfile", "s", key=key, m=message, s=s)
ed = lambda x, message, s: holds(pem(bytes.fromhex("302a300506032b6570032100") + b64(x), "PUBLIC KEY"), message, s)
def jws(text, typ):  # header, payload, body, signed text, signature
    (h, p, s), head = text.split("."), json.loads(b64(text.split(".")[0]))
    return need(head["typ"] == typ and compact(head).encode() == b64(h), "header of " + typ) or (head, b64(p), json.loads(b64(p)), f"{h}.{p}", b64(s))
def attested(key, text, domain, bundle, at):  # an SVID of the node vouches for the key at that time
    head, _, a, signed, s = jws(text, "adattest+jws"); leaf, *more = (pem(b64(c, b"+/"), "CERTIFICATE") for c in head["x5c"])
    chain = openssl("verify", "-attime", str(at), "-CAfile", "ca", "-untrusted", "more", "leaf", ca=bundle, more="".join(more) or leaf, leaf=leaf)
    shown = chain and openssl("x509", "-in", "leaf", "-noout", "-pubkey", "-ext", "subjectAltName,basicConstraints", leaf=leaf)
    ecdsa = der(48, b"".join(der(2, b"\0" * (n[:1] > b"\x7f") + n) for n in (s[:32].lstrip(b"\0"), s[32:].lstrip(b"\0"))))
    return shown and (holds(shown, signed, s) if head["alg"] == "EdDSA" else holds(shown, signed, ecdsa, "-digest", "sha256")) and "CA:TRUE" not in shown and "crit" not in a and \
        re.findall(r"URI:([^,\s]+)", shown) == [key["node"]] == [a["node"]] and key["node"].startswith(domain + "/roster/node/") and a["jwk"] == key["jwk"] and a["time"] <= at + 60
def note(text):  # origin, size, root, and by(): 0 without a line by the key, 1 if the log signed, the time if a witness did
    (top, tail), lines = text.split("\n\n"), [re.fullmatch(r"— ([^ +]+) ([^ ]+)", line).groups() for line in text[:-1].partition("\n\n")[2].split("\n")]
    need(tail[-1] == "\n" and len({(n, s[:5]) for n, s in lines}) == len(lines) and re.fullmatch(r"[^\n]+\n(0|[1-9]\d{0,18})\n[^\n]{44}", top), "checkpoint")
    def by(name, key):
        s = next((s[4:] for n, s in ((n, b64(s, b"+/")) for n, s in lines) if n == name and s[:4] == sha(name.encode(), b"\n", key)[:4]), b"")
        when, message = (int.from_bytes(s[:8], "big"), f"cosignature/v1\ntime {int.from_bytes(s[:8], 'big')}\n{top}\n") if key[0] == 4 else (1, top + "\n")
        return need(not s or when > 0 and ed(url(key[1:]), message, s[8:] if key[0] == 4 else s), "signature of " + name) or (when if s else 0)
    origin, size, root = top.split("\n"); return origin, int(size), b64(root, b"+/"), by
def verify(text, bundle, witnesses=(), staple=False, at=None):
    p, at = json.loads(text, object_pairs_hook=unique), at or int(time.time())
    need({"record", "page"} <= set(p) <= set("record page keys attestation bundle checkpoint index path ext".split()) and p.get("ext", 1) and ("checkpoint" in p) == ("index" in p) and ("keys" in p) != ("attestation" in p), "members")
    (jwt, *shown), page, doc = p["record"].split("~"), jws(p["page"], "adpage+jws"), jws(p["keys"], "adkeys+jws") if "keys" in p else None
    record, d, made = jws(jwt, "adrec+sd-jwt"), page[2]["d"], page[2]["iat"]; r, h = record[2], sha(record[1])
    listed = [k for k in doc[2]["keys"] if kid(k) not in doc[2]["revoked"]] if doc else [{**jws(p["attestation"], "adattest+jws")[2], "attestations": [p["attestation"]]}]
    keys = need(doc or "bundle" not in p, "members") or {kid(k): k for k in listed if any(attested(k, a, r["iss"], bundle, made) for a in k["attestations"])}
    for head, _, body, signed, s in filter(None, (doc, page, record)): need(head["kid"] in keys and head["alg"] == "EdDSA" and ed(keys[head["kid"]]["jwk"]["x"], signed, s) and body["iss"] == r["iss"] and "crit" not in body, "signature of " + head["typ"])
    e, digests = next((e for e in d if e["u"] == r["uid"]), {}), r["reg"].get("_sd", []) + r["doc"].get("_sd", [])
    need((not doc or doc[2]["exp"] > made) and shown.pop() == "" and r["op"] == "put" and all(b64(s) and url(sha(s.encode())) in digests for s in shown), "key document or record")
    need(e.get("o") in ("put", "renew") and (e["h"], e["m"]) == (url(h), url(sha("~".join(sorted(shown)).encode()))) and (page[2]["epoch"] > r["epoch"] or e["r"] >= r["rev"]), "the page names another record")
    need(made <= at + 60 and at < e["x"] and (not staple or at < made + 1800), "expired, or of the future"); need(not staple or len(text.encode()) <= 6144 and len(d) == 1 and (page[2]["from"], page[2]["to"]) == (e["r"] - 1, e["r"]), "not a staple")
    found = {"domain": r["iss"], "rid": e["u"], "until": min(e["x"], made + 1800) if staple else e["x"], "brought_by": r.get("ext", {}).get("from"), "logged": "checkpoint" in p, "witnesses": {}}
    if not found["logged"]: return need(not witnesses, "not logged") or found
    (origin, size, root, by), i, node = note(p["checkpoint"]), p["index"], sha(b"\0\1", h)  # RFC 9162, 2.1.3.2
    need(origin == f"{r['iss'][9:]}/roster/{r['epoch']}" and i == r["log"] and sum([by(origin, b"\1" + b64(k["jwk"]["x"])) for k in keys.values()]), "no member signed the checkpoint"); last = size - 1
    for part in map(b64, p.get("path", [])):
        left = need(last > 0, "path") or i % 2 or i == last; node = sha(b"\1", part, node) if left else sha(b"\1", node, part)
        while left and i and i % 2 == 0: i, last = i // 2, last // 2
        i, last = i // 2, last // 2
    for vkey in witnesses: name, _, key = vkey.split("+", 2); found["witnesses"][name] = by(name, b64(key, b"+/"))
    return need(all(found["witnesses"].values()), "a witness did not cosign") or need(p["index"] < size and last == 0 and node == root, "the path leads to another root") or found
if __name__ == "__main__":
    args = argparse.ArgumentParser(description=__doc__); read = lambda f: pathlib.Path(f).read_text(); args.add_argument("file", type=read)
    args.add_argument("--bundle", type=read, required=True); args.add_argument("--witness", action="append", default=[]); args.add_argument("--staple", action="store_true"); args.add_argument("--at", type=int)
    a = args.parse_args(); print(json.dumps(verify(a.file, a.bundle, a.witness, a.staple, a.at)))
