#!/usr/bin/env node
// Verifies a proof file or a staple of Roster offline: node verify.mjs FILE --bundle PEM [--witness VKEY]... [--staple] [--at SECONDS]
import { createHash, createPublicKey, verify as holds, X509Certificate } from 'node:crypto'
import { readFileSync, realpathSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
const need = (ok, why) => { if (!ok) throw new Error(why) }, url = text => raw(text, 'base64url'), hash = data => sha(data).toString('base64url')
const sha = (...parts) => createHash('sha256').update(Buffer.concat(parts.map(p => Buffer.from(p)))).digest()
const raw = (text, form) => { const b = Buffer.from(text, form); need(b.toString(form) === text, 'not in its one encoding'); return b }
const typed = (type, rest) => Buffer.concat([Buffer.from([type]), rest]), kid = jwk => hash(`{"crv":"Ed25519","kty":"OKP","x":"${jwk.x}"}`)
const ed = x => createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' })
function jws(text, typ) { // a compact JWS; by() checks it by an Ed25519 key, byLeaf() by a certificate
  const [h, p, s, more] = text.split('.'), head = JSON.parse(url(h)), payload = url(p), signed = h + '.' + p
  need(more === undefined && head.typ === typ && JSON.stringify(head) === url(h).toString(), 'header of ' + typ)
  const by = (key, sum) => holds(sum, signed, { key, dsaEncoding: 'ieee-p1363' }, url(s)), byLeaf = c => by(c.publicKey, head.alg === 'EdDSA' ? null : 'sha256')
  return { head, payload, body: JSON.parse(payload), byLeaf, by: x => need(head.alg === 'EdDSA' && by(ed(x), null), 'signature of ' + typ) } }
const attested = (key, domain, cas, at) => key.attestations.some(text => { // an SVID of the node vouches for the key at that time
  const a = jws(text, 'adattest+jws'), chain = a.head.x5c.map(c => new X509Certificate(raw(c, 'base64'))), [leaf] = chain
  const valid = c => Date.parse(c.validFrom) <= at * 1000 && at * 1000 <= Date.parse(c.validTo), by = (c, ca) => ca?.ca && c.checkIssued(ca) && c.verify(ca.publicKey)
  const names = leaf.subjectAltName.split(', ').filter(n => n.startsWith('URI:')), end = chain.findIndex(c => cas.some(ca => valid(ca) && by(c, ca)))
  return end >= 0 && chain.slice(0, end + 1).every((c, i) => valid(c) && (i === end || by(c, chain[i + 1]))) && !leaf.ca && a.byLeaf(leaf) && names.join() === 'URI:' + key.node &&
    key.node.startsWith(domain + '/roster/node/') && a.body.node === key.node && a.body.jwk.x === key.jwk.x && a.body.time <= at + 60 && !a.body.crit })
export function note(text) { // a checkpoint; by() returns 0 without a line by the key, 1 if the log signed, the time if a witness did
  const [top, tail, more] = text.split('\n\n'), [origin, size, root] = top.split('\n'), lines = tail.split('\n').slice(0, -1).map(l => l.split(' '))
  need(more === undefined && tail.endsWith('\n') && origin && /^(0|[1-9]\d{0,15})$/.test(size) && raw(root, 'base64').length === 32, 'checkpoint') ?? need(lines.every(l => l.length === 3 && l[0] === '—' && raw(l[2], 'base64').length > 4) && new Set(lines.map(l => l[1] + l[2].slice(0, 5))).size === lines.length, 'lines')
  return { origin, size: Number(size), root, by(name, key) {
    const line = lines.map(l => [l[1], raw(l[2], 'base64')]).find(([n, s]) => n === name && s.subarray(0, 4).equals(sha(name, '\n', key).subarray(0, 4)))?.[1].subarray(4)
    const [time, from] = line && key[0] === 4 ? [line.readBigUInt64BE(), 8] : [1n, 0], message = (from ? `cosignature/v1\ntime ${time}\n` : '') + top + '\n'
    need(!line || time > 0n && holds(null, message, ed(key.subarray(1).toString('base64url')), line.subarray(from)), 'signature of ' + name)
    return line ? Number(time) : 0 } } }
export function verify(text, { bundle, witnesses = [], staple = false, at = Math.floor(Date.now() / 1000) }) {
  const p = JSON.parse(text), dense = s => s.replace(/\s/g, ''), cas = bundle.match(/-----BEGIN[^]+?-----END CERTIFICATE-----/g).map(c => new X509Certificate(c))
  need(dense(JSON.stringify(p)) === dense(text) && Object.keys(p).every(k => /^(record|page|keys|attestation|bundle|checkpoint|index|path|ext)$/.test(k)), 'members')
  need(!p.keys !== !p.attestation && !(p.attestation && p.bundle) && 'checkpoint' in p === 'index' in p && Object.keys(p.ext ?? [1]).length, 'members')
  const page = jws(p.page, 'adpage+jws'), [jwt, ...shown] = p.record.split('~'), record = jws(jwt, 'adrec+sd-jwt'), r = record.body, made = page.body.iat
  const doc = p.keys && jws(p.keys, 'adkeys+jws'), one = p.attestation && jws(p.attestation, 'adattest+jws').body, { d, from, to } = page.body
  const keys = (doc ? doc.body.keys : [{ ...one, attestations: [p.attestation] }]).filter(k => !doc?.body.revoked.includes(kid(k.jwk)) && attested(k, r.iss, cas, made))
  for (const j of [doc, page, record].filter(Boolean)) need(!j.body.crit && j.body.iss === r.iss, 'crit or iss'), j.by(keys.find(k => kid(k.jwk) === j.head.kid)?.jwk.x ?? need(0, 'key ' + j.head.kid))
  const e = d.find(e => e.u === r.uid), digests = [r.reg, r.doc].flatMap(part => part._sd ?? [])
  need((!doc || doc.body.exp > made) && shown.pop() === '' && shown.every(s => url(s) && digests.includes(hash(s))) && r.op === 'put', 'key document or record') ?? need(/^(put|renew)$/.test(e?.o) && e.h === hash(record.payload) && e.m === hash(shown.sort().join('~')) && (page.body.epoch > r.epoch || e.r >= r.rev), 'the page names another record')
  need(made <= at + 60 && at < e.x && (!staple || at < made + 1800), 'expired, or of the future') ?? need(!staple || Buffer.byteLength(text) <= 6144 && d.length === 1 && from === e.r - 1 && to === e.r, 'not a staple')
  const n = p.checkpoint && note(p.checkpoint), found = { domain: r.iss, rid: r.uid, until: staple ? Math.min(e.x, made + 1800) : e.x, brought_by: r.ext?.from, logged: !!n, witnesses: {} }
  if (!n) return need(!witnesses.length && !('checkpoint' in p), 'not logged') ?? found
  need(n.origin === `${r.iss.slice(9)}/roster/${r.epoch}` && p.index === r.log && keys.map(k => n.by(n.origin, typed(1, url(k.jwk.x)))).some(Boolean), 'no member signed the checkpoint')
  let [i, last, node] = [p.index, n.size - 1, sha([0, 1], sha(record.payload))] // RFC 9162, 2.1.3.2
  for (const part of p.path ?? []) {
    const left = need(last > 0, 'path') ?? (i % 2 || i === last), up = () => { i = Math.floor(i / 2); last = Math.floor(last / 2) }
    node = left ? sha([1], url(part), node) : sha([1], node, url(part))
    while (left && i && i % 2 === 0) up()
    up() }
  for (const [name, , ...key] of witnesses.map(w => w.split('+'))) found.witnesses[name] = need(n.by(name, raw(key.join('+'), 'base64')), name + ' did not cosign') ?? n.by(name, raw(key.join('+'), 'base64'))
  return need(p.index < n.size && last === 0 && node.toString('base64') === n.root, 'the path leads to another root') ?? found }
const [program, file, ...args] = process.argv.slice(1), flag = name => args.includes(name) ? args[args.indexOf(name) + 1] : undefined, read = f => f && readFileSync(f, 'utf8')
if (program && program !== '-' && realpathSync(program) === fileURLToPath(import.meta.url))
  console.log(JSON.stringify(verify(read(file), { bundle: read(flag('--bundle')), witnesses: args.filter((_, i) => args[i - 1] === '--witness'), staple: args.includes('--staple'), at: flag('--at') && Number(flag('--at')) })))
