//go:build !compatnext

package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust/compact"
)

// vectorTime is when everything in the vectors was made. A reader judges them a
// minute later.
const vectorTime = 1780315200 // 2026-06-01T12:00:00Z

// maxShown is how long a payload may be that is repeated in readable form.
const maxShown = 1200

// A specVector is one text and the verdict that a reader must reach.
type specVector struct {
	Name     string   `json:"name"`
	Verdict  string   `json:"verdict"`
	Critical []string `json:"critical,omitempty"` // names of ext that the reader understands
	H        string   `json:"h,omitempty"`        // of a record, as M
	M        string   `json:"m,omitempty"`
	At       int64    `json:"at,omitzero"` // when the reader judges, instead of that of keys.json
	// Witnesses are vkeys, all of which must have cosigned the checkpoint.
	Witnesses []string `json:"witnesses,omitempty"`
	Text      string   `json:"text"`
	Payload   string   `json:"payload,omitempty"` // of the JWS, decoded for people
}

// A specFile is the vectors of one structure.
type specFile struct {
	Structure string       `json:"structure"`
	Vectors   []specVector `json:"vectors"`
}

// specKeys is keys.json: what a reader believes.
type specKeys struct {
	Origin      string            `json:"origin"`
	At          int64             `json:"at"`          // Unix seconds
	Authorities []string          `json:"authorities"` // DER certificates in base64
	KeyDocument string            `json:"key_document"`
	Seeds       map[string]string `json:"seeds"` // of the Ed25519 keys, base64url: to make further vectors
}

// A vectorMaker is the origin of all vectors: the same keys, certificates and bytes
// each time, made by this package's writers wherever they write such bytes.
type vectorMaker struct {
	t      testing.TB
	ca     *CA
	svids  []*x509svid.SVID // Ed25519, then P-256
	keys   map[string]*Key
	doc    *signed.KeyDocument
	keyDoc string
}

func newVectorMaker(t testing.TB) *vectorMaker {
	t.Helper()

	v := &vectorMaker{t: t, keys: map[string]*Key{}}
	for _, name := range []string{"one", "two", "revoked", "stranger"} {
		v.keys[name] = newKey(vectorKey("signing key " + name))
	}

	v.ca = v.authority("authority")
	v.svids = []*x509svid.SVID{
		v.svid(v.ca, "/roster/node/1", vectorKey("SVID 1")),
		v.svid(v.ca, "/roster/node/2", v.ellipticKey("SVID 2")),
	}

	attested, err := v.keys["one"].Attest(v.svids[0], time.Unix(vectorTime, 0))
	must(t, err)
	v.doc = &signed.KeyDocument{
		Issuer: alpha, Epoch: 1780000000, Seq: 17, Expires: vectorTime + signed.KeyDocumentLifetime,
		Mesh: []spiffeid.TrustDomain{beta}, Revoked: []string{v.keys["revoked"].ID()},
		Keys: []signed.SigningKey{
			{Public: v.keys["one"].Public(), Node: v.svids[0].ID, Attestations: []string{attested}},
			{Public: v.keys["two"].Public(), Node: v.svids[1].ID, Attestations: []string{v.attestES256()}},
			{Public: v.keys["revoked"].Public(), Node: v.svids[0].ID, Attestations: []string{}},
		},
	}
	v.keyDoc = v.sign("one", signed.TypeKeys, v.doc.Payload())

	return v
}

// vectorKey returns a key that depends on its name alone.
func vectorKey(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte("roster vectors: " + name))
	return ed25519.NewKeyFromSeed(seed[:])
}

func (v *vectorMaker) ellipticKey(name string) *ecdsa.PrivateKey {
	v.t.Helper()
	seed := sha256.Sum256([]byte("roster vectors: " + name))
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), seed[:])
	must(v.t, err)

	return key
}

func (v *vectorMaker) authority(name string) *CA {
	v.t.Helper()
	key := vectorKey(name)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, URIs: []*url.URL{alpha.ID().URL()},
		NotBefore: time.Unix(vectorTime-3600, 0), NotAfter: time.Unix(vectorTime+10*365*86400, 0),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true,
		SubjectKeyId: []byte(name),
	}

	return &CA{alpha, v.certificate(template, template, key.Public(), key), key}
}

func (v *vectorMaker) svid(ca *CA, path string, key crypto.Signer) *x509svid.SVID {
	v.t.Helper()
	id, err := spiffeid.FromPath(alpha, path)
	must(v.t, err)
	template := leafTemplate(id, loopback, time.Unix(vectorTime, 0), 24*time.Hour)
	template.SerialNumber = big.NewInt(2)
	leaf := v.certificate(template, ca.cert, key.Public(), ca.key)

	return &x509svid.SVID{ID: id, Certificates: []*x509.Certificate{leaf}, PrivateKey: key}
}

// certificate is the same bytes each time, because Ed25519 needs no randomness.
func (v *vectorMaker) certificate(
	template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer,
) *x509.Certificate {
	v.t.Helper()
	der, err := x509.CreateCertificate(nil, template, parent, public, signer)
	must(v.t, err)
	certificate, err := x509.ParseCertificate(der)
	must(v.t, err)

	return certificate
}

func (v *vectorMaker) sign(key, typ string, payload []byte) string {
	v.t.Helper()
	jws, err := v.keys[key].sign(typ, payload)
	must(v.t, err)

	return jws
}

// attestES256 is Attest by the P-256 SVID, with a nonce that depends on the key and
// the bytes alone (RFC 6979).
func (v *vectorMaker) attestES256() string {
	v.t.Helper()
	svid := v.svids[1]
	a := attestation{node: svid.ID, public: v.keys["two"].Public(), time: vectorTime}
	header := fmt.Sprintf(`{"alg":"ES256","typ":"adattest+jws","x5c":["%s"]}`, x5c(svid)[0])
	text := encode(header) + "." + encode(string(a.payload()))

	digest := sha256.Sum256([]byte(text))
	der, err := svid.PrivateKey.Sign(nil, digest[:], crypto.SHA256)
	must(v.t, err)

	var pair struct{ R, S *big.Int }
	_, err = asn1.Unmarshal(der, &pair)
	must(v.t, err)
	signature := make([]byte, 64)
	pair.R.FillBytes(signature[:32])
	pair.S.FillBytes(signature[32:])

	return lowS(text+"."+encode(string(signature)), svid.PrivateKey.Public())
}

// highS returns the twin of an ES256 signature, which holds as well.
func (v *vectorMaker) highS(jws string) string {
	v.t.Helper()
	dot := strings.LastIndexByte(jws, '.')
	signature, err := directory.B64.DecodeString(jws[dot+1:])
	must(v.t, err)
	s := new(big.Int).SetBytes(signature[32:])
	s.Sub(elliptic.P256().Params().N, s).FillBytes(signature[32:])

	return jws[:dot+1] + encode(string(signature))
}

func encode(text string) string { return directory.B64.EncodeToString([]byte(text)) }

// files returns all vectors by the name of their file.
func (v *vectorMaker) files() map[string]any {
	v.t.Helper()

	seeds := map[string]string{}
	for name, key := range v.keys {
		seeds[name] = directory.B64.EncodeToString(key.private.Seed())
	}

	return map[string]any{
		"keys.json": specKeys{
			Origin: alpha.Name(), At: vectorTime + 60, KeyDocument: v.keyDoc, Seeds: seeds,
			Authorities: []string{base64.StdEncoding.EncodeToString(v.ca.cert.Raw)},
		},
		"page.json":         specFile{"page", v.pages()},
		"head.json":         specFile{"head", v.heads()},
		"record.json":       specFile{"record", v.records()},
		"key-document.json": specFile{"key document", v.keyDocuments()},
		"attestation.json":  specFile{"attestation", v.attestations()},
		"proof.json":        specFile{"proof", v.proofs()},
		"staple.json":       specFile{"staple", v.staples()},
		"evidence.json":     specFile{"evidence", v.evidence()},
		// For operators: the first vector of evidence.json as a file, and its anchor.
		"sample/evidence.json": v.equivocation().Bytes(),
		"sample/bundle.pem":    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: v.ca.cert.Raw}),
	}
}

// equivocation is a file that shows two entries of one registration and revision.
func (v *vectorMaker) equivocation() *Evidence {
	page := v.page()
	other := page
	other.Digests = slices.Clone(page.Digests)
	other.Digests[0].H = directory.Hash{1}

	bundle, err := spiffebundle.FromX509Authorities(alpha, []*x509.Certificate{v.ca.cert}).Marshal()
	must(v.t, err)

	return &Evidence{
		Offence: TwoDigests, Keys: []string{v.keyDoc}, Bundle: bundle,
		Pages: []string{
			v.sign("one", signed.TypePage, page.Payload()), v.sign("two", signed.TypePage, other.Payload()),
		},
	}
}

func (v *vectorMaker) evidence() []specVector {
	evidence := func(name, verdict string, change func(*Evidence)) specVector {
		e := v.equivocation()
		change(e)

		return specVector{Name: name, Verdict: verdict, Text: string(e.Bytes())}
	}
	// second is a page that contradicts the first one, but for a change of it.
	second := func(key string, change func(*signed.Page)) func(*Evidence) {
		return func(e *Evidence) {
			page := v.page()
			page.Digests[0].H = directory.Hash{1}
			change(&page)
			e.Pages[1] = v.sign(key, signed.TypePage, page.Payload())
		}
	}
	documents := func(change func(*signed.KeyDocument)) func(*Evidence) {
		return func(e *Evidence) {
			doc := *v.doc
			doc.Mesh = nil
			change(&doc)

			e.Offence, e.Pages = TwoKeyDocuments, nil
			e.Keys = []string{v.keyDoc, v.sign("one", signed.TypeKeys, doc.Payload())}
		}
	}
	same := func(*signed.Page) {}
	text := string(v.equivocation().Bytes())

	return []specVector{
		evidence("two entries of one registration and revision", "equivocation", func(*Evidence) {}),
		evidence("two entries by one key", "equivocation", second("one", same)),
		evidence("two entries, one of another range", "equivocation",
			second("two", func(p *signed.Page) { p.From, p.Digests = 6, p.Digests[:1] })),
		evidence("two key documents with one number", "equivocation", documents(func(*signed.KeyDocument) {})),
		{Name: "a member that a reader doesn't know", Verdict: "equivocation",
			Text: strings.Replace(text, "{", `{"other":1,`, 1)},
		evidence("one page twice", "format", func(e *Evidence) { e.Pages[1] = e.Pages[0] }),
		evidence("two pages that agree", "format", func(e *Evidence) {
			page := v.page()
			page.IssuedAt++
			e.Pages[1] = v.sign("two", signed.TypePage, page.Payload())
		}),
		evidence("an entry that one page lacks", "format",
			second("two", func(p *signed.Page) { p.Digests = p.Digests[1:] })),
		evidence("entries of two revisions", "format",
			second("two", func(p *signed.Page) { p.Digests[0].Revision = 6 })),
		evidence("pages of two epochs", "format", second("two", func(p *signed.Page) { p.Epoch++ })),
		evidence("pages of two streams", "format",
			second("two", func(p *signed.Page) { p.Audience = directory.Only(beta) })),
		evidence("one page", "format", func(e *Evidence) { e.Pages = e.Pages[:1] }),
		evidence("key documents with two numbers", "format", documents(func(d *signed.KeyDocument) { d.Seq++ })),
		evidence("one key document twice", "format", documents(func(d *signed.KeyDocument) { *d = *v.doc })),
		evidence("an offence that is none", "format", func(e *Evidence) { e.Offence = "E9" }),
		evidence("a page by a stranger", "key", second("stranger", same)),
		evidence("a page by a revoked key", "key", second("revoked", same)),
		evidence("keys under another authority", "key", func(e *Evidence) { e.Keys = []string{v.imposture()} }),
		evidence("a page with a forged signature", "signature", func(e *Evidence) {
			dot := strings.LastIndexByte(e.Pages[1], '.')
			e.Pages[1] = e.Pages[1][:dot+1] + flipped(e.Pages[1][dot+1:])
		}),
		{Name: "a name twice", Verdict: "format", Text: strings.Replace(text, "{", `{"offence":"E1",`, 1)},
	}
}

// A shape is a payload with two of its members that follow each other, as written.
type shape struct {
	typ           string
	payload       string
	first, second string
	unsupported   bool // it has crit
	sign          func(payload string) string
}

// signed is a vector of a payload that the shape's key signs.
func (s *shape) signed(name, verdict, payload string) specVector {
	return s.text(name, verdict, s.sign(payload))
}

// text is a vector of a JWS. The payload is repeated for people if it is short text.
func (s *shape) text(name, verdict, jws string) specVector {
	vector := specVector{Name: name, Verdict: verdict, Text: jws}

	jws, _, _ = strings.Cut(jws, "~")
	if parts := strings.Split(jws, "."); len(parts) == 3 {
		if payload, err := directory.B64.DecodeString(parts[1]); err == nil && utf8.Valid(payload) &&
			len(payload) < maxShown {
			vector.Payload = string(payload)
		}
	}

	return vector
}

// grown returns the payload with something behind its listed members.
func (s *shape) grown(behind string) string { return strings.TrimSuffix(s.payload, "}") + behind + "}" }

// payloads are the vectors that every structure has: what ext and crit may be, and
// what is no canonical payload.
func (s *shape) payloads() []specVector {
	nested := func(levels int) string {
		return `,"ext":` + strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels)
	}
	long := func(size int) string {
		return `,"ext":{"a":"` + strings.Repeat("x", size-len(`{"a":""}`)) + `"}`
	}

	vectors := []specVector{
		s.signed("as it is written", "ok", s.payload),
		s.signed("ext that nobody knows, in any spacing", "ok",
			s.grown(`,"ext":{ "colour" : "blue","n":[1, 2.5e3, null] }`)),
		s.signed("ext with escapes and other scripts", "ok", s.grown(`,"ext":{"a\u0062":"\"é\ud83d\ude00\""}`)),
		s.signed("ext eight deep", "ok", s.grown(nested(8))),
		s.signed("ext of 4096 bytes", "ok", s.grown(long(4096))),
		s.signed("ext nine deep", "json", s.grown(nested(9))),
		s.signed("ext of 4097 bytes", "json", s.grown(long(4097))),
		s.signed("ext without a member", "json", s.grown(`,"ext":{}`)),
		s.signed("ext that is a list", "json", s.grown(`,"ext":["a"]`)),
		s.signed("ext that is null", "json", s.grown(`,"ext":null`)),
		s.signed("ext with a name twice", "json", s.grown(`,"ext":{"a":1,"\u0061":2}`)),
		s.signed("ext with a name twice, deeper", "json", s.grown(`,"ext":{"a":{"b":1,"b":1}}`)),
		s.signed("ext with half a surrogate pair", "json", s.grown(`,"ext":{"a":"\ud83d"}`)),
		s.signed("ext with bytes that are no UTF-8", "json", s.grown(",\"ext\":{\"a\":\"\xff\"}")),
		s.signed("ext with a comment", "json", s.grown(`,"ext":{"a":1/**/}`)),
		s.signed("ext with a space in front", "json", s.grown(`,"ext": {"a":1}`)),
		s.signed("ext twice", "json", s.grown(`,"ext":{"a":1},"ext":{"a":1}`)),
		s.signed("crit without ext", "json", s.grown(`,"crit":["a"]`)),
		s.signed("crit in front of ext", "json", s.grown(`,"crit":["a"],"ext":{"a":1}`)),
		s.signed("crit without a name", "json", s.grown(`,"ext":{"a":1},"crit":[]`)),
		s.signed("crit with a name that ext lacks", "json", s.grown(`,"ext":{"a":1},"crit":["b"]`)),
		s.signed("crit with twins", "json", s.grown(`,"ext":{"a":1},"crit":["a","a"]`)),
		s.signed("crit with white space", "json", s.grown(`,"ext":{"a":1},"crit":[ "a"]`)),
		s.signed("crit with a needless escape", "json", s.grown(`,"ext":{"a":1},"crit":["\u0061"]`)),
		s.signed("crit with a number", "json", s.grown(`,"ext":{"a":1},"crit":[1]`)),
		s.signed("a member behind the listed ones", "json", s.grown(`,"other":1`)),
		s.signed("a name twice", "json", s.replaced(s.first, s.first+","+s.first)),
		s.signed("members in another order", "json", s.replaced(s.first+","+s.second, s.second+","+s.first)),
		s.signed("a listed member missing", "json", s.replaced(s.first+",", "")),
		s.signed("white space between the listed members", "json", s.replaced(s.first, " "+s.first)),
		s.signed("white space in a listed member", "json",
			s.replaced(s.first, strings.Replace(s.first, `":`, `": `, 1))),
		s.signed("white space behind the payload", "json", s.payload+"\n"),
		s.signed("a name with a needless escape", "json",
			s.replaced(s.first, fmt.Sprintf(`"\u%04x`, s.first[1])+s.first[2:])),
		s.signed("two values", "json", s.payload+s.payload),
		s.signed("a list around the payload", "json", "["+s.payload+"]"),
	}
	if s.unsupported {
		unknown := s.signed("crit that the reader doesn't know", "unsupported",
			s.grown(`,"ext":{"colour":"blue"},"crit":["colour"]`))
		vectors = append(vectors, unknown)
	}

	return vectors
}

func (s *shape) replaced(old, by string) string { return strings.Replace(s.payload, old, by, 1) }

// understood is a vector of a crit that this reader understands.
func (s *shape) understood() specVector {
	vector := s.signed("crit that the reader knows", "ok", s.grown(`,"ext":{"colour":"blue"},"crit":["colour"]`))
	vector.Critical = []string{"colour"}

	return vector
}

// serializations are the vectors of the JWS around the payload.
func (s *shape) serializations() []specVector {
	good := s.sign(s.payload)

	jws, behind := good, ""
	if at := strings.IndexByte(good, '~'); at >= 0 {
		jws, behind = good[:at], good[at:]
	}

	parts := strings.Split(jws, ".")
	header := mustDecode(parts[0])
	with := func(name, verdict string, changed ...string) specVector {
		return s.text(name, verdict, strings.Join(changed, ".")+behind)
	}
	headed := func(name, header string) specVector { return with(name, "header", encode(header), parts[1], parts[2]) }

	return []specVector{
		with("two parts", "format", parts[0], parts[1]),
		with("four parts", "format", parts[0], parts[1], parts[2], ""),
		with("no signature", "format", parts[0], parts[1], ""),
		with("padding", "format", padded(parts[0]), padded(parts[1]), padded(parts[2])),
		with("spare bits", "format", parts[0], parts[1], spareBits(parts[2])),
		with("a line break", "format", parts[0][:4]+"\n"+parts[0][4:], parts[1], parts[2]),
		headed("a header with another member", strings.Replace(header, `{`, `{"b64":true,`, 1)),
		headed("a header with crit", strings.Replace(header, `{`, `{"crit":["exp"],`, 1)),
		headed("a header with white space", strings.Replace(header, `,`, `, `, 1)),
		headed("a header with a name twice", strings.Replace(header, `{`, `{"alg":"EdDSA",`, 1)),
		headed("a header without alg", strings.Replace(strings.Replace(header, `"alg":"EdDSA",`, "", 1),
			`"alg":"ES256",`, "", 1)),
		headed("another type", strings.Replace(header, s.typ, "jwt", 1)),
		headed("alg none", strings.Replace(header, `"alg":"EdDSA"`, `"alg":"none"`, 1)),
		with("a signature with one bit changed", "signature", parts[0], parts[1], flipped(parts[2])),
		with("the signature of other bytes", "signature", parts[0], parts[1], otherSignature(s, parts[2])),
	}
}

func mustDecode(text string) string {
	raw, err := directory.B64.DecodeString(text)
	if err != nil {
		panic(err)
	}

	return string(raw)
}

func padded(part string) string { return part + strings.Repeat("=", (4-len(part)%4)%4) }

// spareBits sets a bit behind the last byte of a text whose length is no multiple of 4.
func spareBits(part string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, part[len(part)-1])

	return part[:len(part)-1] + alphabet[last+1:last+2]
}

func flipped(part string) string {
	raw := []byte(mustDecode(part))
	raw[3] ^= 1

	return encode(string(raw))
}

// otherSignature is the signature of the same payload with an ext.
func otherSignature(s *shape, same string) string {
	jws, _, _ := strings.Cut(s.sign(s.grown(`,"ext":{"a":1}`)), "~")
	if other := jws[strings.LastIndexByte(jws, '.')+1:]; other != same {
		return other
	}

	panic("two payloads with one signature")
}

// signers are the vectors of who signed, and of what comes first if several things
// are wrong.
func (v *vectorMaker) signers(s *shape, by func(key, payload string) string, next string) []specVector {
	vectors := []specVector{
		s.text(nameOtherNode, "ok", by("two", s.payload)),
		s.text("by a key that the domain doesn't list", "key_unknown", by("stranger", s.payload)),
		s.text("by a key that the domain revoked", "key_revoked", by("revoked", s.payload)),
	}
	if next == "" {
		return vectors
	}

	jws := by("one", next)

	forged := jws[:strings.LastIndexByte(jws, '.')+1] + flipped(strings.Split(strings.Split(jws, "~")[0], ".")[2])
	if _, behind, found := strings.Cut(jws, "~"); found {
		forged += "~" + behind
	}

	return append(vectors,
		s.text("format 2", "unsupported", jws),
		s.text("format 2 with a name twice", "json", by("one", strings.TrimSuffix(next, "}")+`,"later":1}`)),
		s.text("format 2 by a key that the domain doesn't list", "key_unknown", by("stranger", next)),
		s.text("format 2 by a key that the domain revoked", "key_revoked", by("revoked", next)),
		s.text("format 2 with a forged signature", "signature", forged),
		s.text("format 0", "json", by("one", strings.Replace(next, `:2,"iss"`, `:0,"iss"`, 1))),
		s.text("a format with a leading zero", "json", by("one", strings.Replace(next, `:2,"iss"`, `:02,"iss"`, 1))),
	)
}

const nameOtherNode = "by the domain's other node"

// by signs payloads of a type.
func (v *vectorMaker) by(typ string) func(key, payload string) string {
	return func(key, payload string) string { return v.sign(key, typ, []byte(payload)) }
}

func (v *vectorMaker) page() signed.Page {
	change := v.change(signed.OpPut)
	put, texts := v.statement(&change)

	return signed.Page{
		Issuer: alpha, Epoch: 1780000000, Audience: directory.Mesh, From: 5, To: 30, At: 31, IssuedAt: vectorTime,
		Digests: []signed.Digest{
			{RID: change.RID, Revision: 7, Op: signed.OpPut, H: directory.HashOf(put),
				M: signed.HashDisclosures(texts), Deadline: vectorTime + 7200, Lifetime: 7200},
			{RID: rid(2), Revision: 8, Op: signed.OpRenew, H: directory.Hash{1}, M: directory.Hash{2},
				Deadline: vectorTime + 600, Lifetime: 600},
			{RID: rid(3), Revision: 20, Op: signed.OpEnd, H: directory.Hash{3}},
			{RID: rid(4), Revision: 30, Op: signed.OpDrop},
		},
	}
}

func rid(n byte) directory.RID { return directory.NewRID(vectorTime*1000, [10]byte{n}) }

func (v *vectorMaker) pages() []specVector {
	page := v.page()
	by := v.by(signed.TypePage)
	s := &shape{
		typ: signed.TypePage, payload: string(page.Payload()), first: `"from":5`, second: `"to":30`, unsupported: true,
		sign: func(payload string) string { return by("one", payload) },
	}

	empty := page
	empty.Digests = nil
	vectors := slices.Concat(s.payloads(), s.serializations(),
		v.signers(s, by, strings.Replace(s.grown(`,"later":{"a":1}`), `{"v":1`, `{"v":2`, 1)))

	return append(vectors, s.understood(),
		s.signed("no digest", "ok", string(empty.Payload())),
		s.signed("an empty range", "json", s.replaced(`"to":30`, `"to":5`)),
		s.signed("a range beyond the revision", "json", s.replaced(`"at":31`, `"at":29`)),
		s.signed("digests out of order", "json", s.replaced(`"r":7`, `"r":9`)),
		s.signed("a digest behind the range", "json", s.replaced(`"r":30`, `"r":31`)),
		s.signed("a digest in front of the range", "json", s.replaced(`"r":7`, `"r":5`)),
		s.signed("an operation that is none", "json", s.replaced(`"o":"drop"`, `"o":"gone"`)),
		s.signed("a digest with a member too many", "json", s.replaced(`"o":"drop"`, `"o":"drop","x":1`)),
		s.signed("a digest with ext", "json", s.replaced(`"o":"drop"`, `"o":"drop","ext":{"a":1}`)),
		s.signed("a hash with spare bits", "json",
			s.replaced(directory.Hash{3}.String(), spareBits(directory.Hash{3}.String()))),
		s.signed("a fraction", "json", s.replaced(`"from":5`, `"from":5.0`)),
		s.signed("a string for a number", "json", s.replaced(`"from":5`, `"from":"5"`)),
		s.signed("a domain's name in upper case", "json", s.replaced(`alpha.test`, `Alpha.test`)),
	)
}

func (v *vectorMaker) heads() []specVector {
	head := signed.Head{
		Issuer: alpha, Epoch: 1780000000, Tip: 30, At: 31, Size: 12, Root: directory.Hash{7},
		Keys: directory.HashOf(v.doc.Payload()), IssuedAt: vectorTime,
	}
	by := v.by(signed.TypeHead)
	s := &shape{
		typ: signed.TypeHead, payload: string(head.Payload()), first: `"at":31`, second: `"size":12`, unsupported: true,
		sign: func(payload string) string { return by("one", payload) },
	}
	vectors := slices.Concat(s.payloads(), s.serializations(),
		v.signers(s, by, strings.Replace(s.grown(`,"later":{"a":1}`), `{"v":1`, `{"v":2`, 1)))

	return append(vectors, s.understood(),
		s.signed("a tip beyond the revision", "json", s.replaced(`"tip":30`, `"tip":32`)),
		s.signed("a hash that is too short", "json", s.replaced(directory.Hash{7}.String(), "AAAA")),
		s.signed("a revision below zero", "json", s.replaced(`"at":31`, `"at":-1`)),
	)
}

func (v *vectorMaker) keyDocuments() []specVector {
	by := v.by(signed.TypeKeys)
	short := *v.doc // without the second node
	short.Keys = []signed.SigningKey{v.doc.Keys[0], v.doc.Keys[2]}
	s := &shape{
		typ: signed.TypeKeys, payload: string(short.Payload()), first: `"epoch":1780000000`, second: `"seq":17`,
		sign: func(payload string) string { return by("one", payload) },
	}

	formats := short
	formats.Formats = signed.Formats{signed.StructureStatement: {1, 2}, "later": {1, 3}}
	cosigning := short
	cosigning.Keys = slices.Clone(short.Keys)
	cosigning.Keys[0].Cosign = vectorKey("cosigning").Public().(ed25519.PublicKey)
	expired := short
	expired.Expires = vectorTime
	unattested := short
	unattested.Keys = slices.Clone(short.Keys)
	unattested.Keys[0].Attestations = []string{}
	twice := short
	twice.Keys = append(slices.Clone(short.Keys), short.Keys[0])
	stranger := v.svid(v.authority("another authority"), "/roster/node/1", vectorKey("SVID 3"))
	foreign := short
	foreign.Keys = slices.Clone(short.Keys)
	attested, err := v.keys["one"].Attest(stranger, time.Unix(vectorTime, 0))
	must(v.t, err)
	foreign.Keys[0].Attestations = []string{attested}

	vectors := slices.Concat(s.payloads(), s.serializations(), v.signers(s, by, ""))
	for i, vector := range vectors {
		if vector.Name == nameOtherNode { // the short document doesn't list it
			vectors[i] = s.text(nameOtherNode, "ok", by("two", string(v.doc.Payload())))
		}
	}

	return append(vectors,
		s.signed("formats, of a structure that the reader doesn't know too", "ok", string(formats.Payload())),
		s.signed("a cosigning key", "ok", string(cosigning.Payload())),
		s.signed("crit, which a key document never has", "json", s.grown(`,"ext":{"a":1},"crit":["a"]`)),
		s.signed("format 2, which a key document never has", "json", s.replaced(`{"v":1`, `{"v":2`)),
		s.signed("formats without 1", "json", strings.Replace(string(formats.Payload()), "[1,2]", "[2]", 1)),
		s.signed("formats out of order", "json", strings.Replace(string(formats.Payload()), "[1,2]", "[1,3,2]", 1)),
		s.signed("formats that say what is so anyway", "json",
			strings.Replace(string(formats.Payload()), "[1,2]", "[1]", 1)),
		s.signed("a key twice", "json", string(twice.Payload())),
		s.signed("a node of another domain", "json",
			s.replaced("spiffe://alpha.test/roster/node/1", "spiffe://beta.test/roster/node/1")),
		s.signed("an end that has come", "expired", string(expired.Payload())),
		s.signed("a key without an attestation", "key_unknown", string(unattested.Payload())),
		s.signed("a key that another authority's node attests", "key_unknown", string(foreign.Payload())),
	)
}

func (v *vectorMaker) attestations() []specVector {
	node := v.svids[0]
	a := attestation{node: node.ID, public: v.keys["one"].Public(), time: vectorTime}
	s := &shape{
		typ: signed.TypeAttestation, payload: string(a.payload()),
		first: `"domain":"alpha.test"`, second: `"node":"spiffe://alpha.test/roster/node/1"`, unsupported: true,
		sign: func(payload string) string { return signAttestation(v.t, node, []byte(payload)) },
	}

	elliptic := v.attestES256()
	other := attestation{node: node.ID, public: v.keys["stranger"].Public(), time: vectorTime}
	later := attestation{node: node.ID, public: v.keys["one"].Public(), time: vectorTime + 3600}
	foreign := v.svid(v.authority("another authority"), "/roster/node/1", vectorKey("SVID 3"))

	return append(slices.Concat(s.payloads(), s.serializations()),
		s.text("of a P-256 SVID", "ok", elliptic),
		s.text("the twin of an ECDSA signature", "signature", v.highS(elliptic)),
		s.signed("of another key", "attestation", string(other.payload())),
		s.signed("of the future", "attestation", string(later.payload())),
		s.text("by another authority's node", "attestation", signAttestation(v.t, foreign, a.payload())),
	)
}

func (v *vectorMaker) change(op signed.Op) signed.Change {
	v.t.Helper()
	text := []byte(`{"agent":"printer","base":"https://printer.alpha.test","protocols":["https"],"secret":"canary"}`)
	doc, err := directory.ParseDocument(directory.KindAD, text)
	must(v.t, err)

	return signed.Change{
		Issuer: alpha, RID: rid(1), Op: op, Epoch: 1780000000, Revision: 7, IssuedAt: vectorTime, Since: vectorTime,
		Leaf:  3,
		Agent: "printer", Owner: identity(v.t, "spiffe://alpha.test/agent/ada"), Document: doc, Salt: signed.Salt{9},
		Extension: signed.BroughtBy(spiffeid.RequireFromPath(alpha, "/roster/node/1")),
	}
}

// statement returns a payload, and the disclosures without the member secret.
func (v *vectorMaker) statement(c *signed.Change) (payload []byte, shown []string) {
	v.t.Helper()
	all := c.Disclosures()
	payload, err := signed.Statement(signed.StatementFormat, c, all)
	must(v.t, err)

	for _, d := range all {
		if d.Name != "secret" {
			shown = append(shown, d.Text)
		}
	}

	return payload, shown
}

func (v *vectorMaker) records() []specVector {
	put := v.change(signed.OpPut)
	put.Extension = signed.Extension{} // the vectors of ext have their own
	payload, shown := v.statement(&put)
	by := func(key, payload string) string {
		return signed.Record{JWS: v.sign(key, signed.TypeRecord, []byte(payload)), Disclosures: shown}.String()
	}
	s := &shape{
		typ: signed.TypeRecord, payload: string(payload), first: `"rev":7`, second: `"iat":1780315200`,
		unsupported: true,
		sign:        func(payload string) string { return by("one", payload) },
	}
	vectors := slices.Concat(s.payloads(), s.serializations(),
		v.signers(s, by, strings.Replace(s.grown(`,"later":{"a":1}`), `"format":1`, `"format":2`, 1)))
	vectors = append(vectors, s.understood(),
		s.signed("a digest twice", "json", s.replaced(`{"_sd":["`, `{"_sd":["`+sdOf(s.payload)+`","`)),
		s.signed("v 2, which a statement never has", "json", s.replaced(`{"v":1`, `{"v":2`)),
		s.text("no ~ behind the JWS", "format", v.sign("one", signed.TypeRecord, payload)),
	)
	vectors = append(vectors, v.disclosed(s)...)

	for i, vector := range vectors {
		vectors[i].H, vectors[i].M = recordName(vector.Text)
	}

	return vectors
}

// sdOf returns the first digest of a statement.
func sdOf(payload string) string {
	_, rest, _ := strings.Cut(payload, `{"_sd":["`)
	first, _, _ := strings.Cut(rest, `"`)

	return first
}

// recordName returns h and m of a record, as far as it can be taken apart.
func recordName(text string) (h, m string) {
	r, err := signed.ParseRecord(text)
	if err != nil {
		return "", ""
	}

	jws, _, err := compact.ParseOwn(r.JWS, signed.TypeRecord, signed.MaxRecord)
	if err != nil {
		return "", ""
	}

	return directory.HashOf(jws.Payload).String(), signed.HashDisclosures(r.Disclosures).String()
}

// disclosed are the vectors of what a record shows.
func (v *vectorMaker) disclosed(s *shape) []specVector {
	put := v.change(signed.OpPut)
	all := put.Disclosures()
	texts := func(of []signed.Disclosure, without ...string) []string {
		var kept []string
		for _, d := range of {
			if !slices.Contains(without, d.Name) {
				kept = append(kept, d.Text)
			}
		}

		return kept
	}
	record := func(name, verdict string, c *signed.Change, of []signed.Disclosure, shown []string) specVector {
		payload, err := signed.Statement(signed.StatementFormat, c, of)
		must(v.t, err)

		return s.text(name, verdict, signed.Record{JWS: v.sign("one", signed.TypeRecord, payload),
			Disclosures: shown}.String())
	}
	extra := func(object, json string) []signed.Disclosure {
		return append(slices.Clone(all), signed.Disclosure{Object: object, Text: encode(json)})
	}
	shownWith := func(name, verdict, object, json string) specVector {
		of := extra(object, json)
		return record(name, verdict, &put, of, texts(of))
	}

	end := v.change(signed.OpEnd)
	end.Prev, end.Revision = directory.Hash{5}, 9
	imported := v.change(signed.OpPut)
	imported.Provenance = directory.Provenance{
		Registrant:   identity(v.t, "spiffe://alpha.test/agent/eve"),
		ImportedFrom: "https://registry.example/agents/1",
	}

	const salt = "AAAAAAAAAAAAAAAAAAAAAA"

	return []specVector{
		record("all members", "ok", &put, all, texts(all)),
		record("disclosures in another order", "ok", &put, all, reversed(texts(all))),
		record("who registered it, and where it was imported from", "ok", &imported, imported.Disclosures(),
			texts(imported.Disclosures())),
		record("an end", "ok", &end, nil, nil),
		record("an end that discloses something", "record", &end, nil, texts(all)),
		record("the agent's name is withheld", "record", &put, all, texts(all, "agent")),
		record("the owner is withheld", "ok", &put, all, texts(all, "owner")),
		record("the owner is withheld and the registrant is not", "record", &imported, imported.Disclosures(),
			texts(imported.Disclosures(), "owner")),
		record("a disclosure twice", "record", &put, all, append(texts(all), all[0].Text)),
		record("a disclosure that the statement has no digest of", "record", &put, all,
			append(texts(all), encode(`["`+salt+`","x",1]`))),
		shownWith("a name in reg that the reader doesn't know", "ok", "reg", `["`+salt+`","later",{"a":1}]`),
		shownWith("a name of reg twice", "record", "reg", `["`+salt+`","owner","spiffe://alpha.test/agent/eve"]`),
		shownWith("a member of the document twice", "record", "doc", `["`+salt+`","secret","another"]`),
		shownWith("a value with a name twice", "record", "doc", `["`+salt+`","x",{"a":1,"a":2}]`),
		shownWith("a salt of 15 bytes", "record", "doc", `["`+salt[:20]+`","x",1]`),
		shownWith("a disclosure of two elements", "record", "doc", `["`+salt+`","x"]`),
		shownWith("a name that is SD-JWT's own", "record", "doc", `["`+salt+`","_sd",[]]`),
	}
}

func reversed(texts []string) []string {
	slices.Reverse(texts)
	return texts
}

func (v *vectorMaker) proofs() []specVector {
	put := v.change(signed.OpPut)
	payload, shown := v.statement(&put)
	page := v.page()
	bundle, err := spiffebundle.FromX509Authorities(alpha, []*x509.Certificate{v.ca.cert}).Marshal()
	must(v.t, err)
	good := func() *Proof {
		return &Proof{
			Record: signed.Record{JWS: v.sign("one", signed.TypeRecord, payload), Disclosures: shown}.String(),
			Page:   v.sign("two", signed.TypePage, page.Payload()), Keys: v.keyDoc, Bundle: bundle,
		}
	}
	proof := func(name, verdict string, change func(*Proof)) specVector {
		p := good()
		change(p)

		return specVector{Name: name, Verdict: verdict, Text: string(p.Bytes())}
	}
	paged := func(change func(*signed.Page)) func(*Proof) {
		return func(p *Proof) {
			changed := page
			changed.Digests = slices.Clone(page.Digests)
			change(&changed)
			p.Page = v.sign("two", signed.TypePage, changed.Payload())
		}
	}
	text := string(good().Bytes())

	return append([]specVector{
		proof("without a ledger", "ok", func(*Proof) {}),
		proof("without the file's own bundle", "ok", func(p *Proof) { p.Bundle = nil }),
		proof("logged", "ok", func(p *Proof) { v.log(p, payload) }),
		proof("with ext", "ok", func(p *Proof) { p.Ext = []byte(`{"a":1}`) }),
		{Name: "with ext without a member", Verdict: "format", Text: strings.Replace(text, "{", `{"ext":{},`, 1)},
		proof("with crit", "unsupported", func(p *Proof) { p.Ext, p.Crit = []byte(`{"a":1}`), []string{"a"} }),
		proof("with crit that ext lacks", "format", func(p *Proof) {
			p.Ext, p.Crit = []byte(`{"a":1}`), []string{"b"}
		}),
		{Name: "a member that a reader doesn't know", Verdict: "format",
			Text: strings.Replace(text, "{", `{"other":1,`, 1)},
		{Name: "a name twice", Verdict: "format", Text: strings.Replace(text, "{", `{"page":"",`, 1)},
		proof("a page of another statement", "format", paged(func(p *signed.Page) {
			p.Digests[0].H = directory.Hash{1}
		})),
		proof("a page of other disclosures", "format", paged(func(p *signed.Page) {
			p.Digests[0].M = directory.Hash{1}
		})),
		proof("a page without the registration", "format", paged(func(p *signed.Page) { p.Digests = p.Digests[1:] })),
		proof("a page that says that it has ended", "format", paged(func(p *signed.Page) {
			p.Digests[0] = signed.Digest{RID: p.Digests[0].RID, Revision: 7, Op: signed.OpEnd, H: p.Digests[0].H}
		})),
		proof("a deadline that has passed", "expired", paged(func(p *signed.Page) {
			p.Digests[0].Deadline = vectorTime + 60
		})),
		proof("a page by a stranger", "key", func(p *Proof) {
			p.Page = v.sign("stranger", signed.TypePage, page.Payload())
		}),
		proof("a record by a revoked key", "key", func(p *Proof) {
			p.Record = signed.Record{JWS: v.sign("revoked", signed.TypeRecord, payload), Disclosures: shown}.String()
		}),
		proof("a record with a forged signature", "signature", func(p *Proof) {
			jws := v.sign("one", signed.TypeRecord, payload)
			dot := strings.LastIndexByte(jws, '.')
			p.Record = signed.Record{JWS: jws[:dot+1] + flipped(jws[dot+1:]), Disclosures: shown}.String()
		}),
		proof("made under another authority", "key", func(p *Proof) { p.Keys = v.imposture() }),
		proof("a checkpoint without a path", "format", func(p *Proof) { v.log(p, payload); p.Index = nil }),
		proof("a path to another root", "inclusion", func(p *Proof) {
			v.log(p, payload)
			p.Path[0] = directory.Hash{}
		}),
		proof("the path of another leaf", "inclusion", func(p *Proof) { v.log(p, payload); *p.Index = 2 }),
		proof("a checkpoint by a stranger", "inclusion", func(p *Proof) { v.logBy(p, payload, "stranger") }),
	}, v.witnessed(good, payload)...)
}

// witness is the key of a witness of the vectors.
func (v *vectorMaker) witness(name string) (key ed25519.PrivateKey, vkey string) {
	key = vectorKey("witness " + name)
	return key, vkeyOf(name, checkpoint.TypeWitness, key.Public().(ed25519.PublicKey))
}

// cosigned adds the statement to a ledger whose checkpoint two witnesses cosigned.
func (v *vectorMaker) cosigned(p *Proof, payload []byte) {
	v.t.Helper()
	v.log(p, payload)

	note, err := checkpoint.Parse(p.Checkpoint)
	must(v.t, err)

	for _, name := range []string{"beta.test/w", "gamma.test/w"} {
		key, _ := v.witness(name)
		p.Checkpoint += checkpoint.Cosign(note, name, key, time.Unix(vectorTime+30, 0))
	}
}

// witnessed are proofs that a reader judges by the witnesses that it believes.
func (v *vectorMaker) witnessed(good func() *Proof, payload []byte) []specVector {
	_, beta := v.witness("beta.test/w")
	_, gamma := v.witness("gamma.test/w")
	_, delta := v.witness("delta.test/w")

	line := func(p *Proof, i int, change func(*checkpoint.Signature)) {
		note, err := checkpoint.Parse(p.Checkpoint)
		must(v.t, err)
		change(&note.Signatures[i])
		p.Checkpoint = note.String()
	}

	vector := func(name, verdict string, witnesses []string, change func(*Proof)) specVector {
		p := good()
		change(p)

		return specVector{Name: name, Verdict: verdict, Witnesses: witnesses, Text: string(p.Bytes())}
	}
	cosigned := func(name, verdict string, witnesses []string, change func(*Proof)) specVector {
		return vector(name, verdict, witnesses, func(p *Proof) {
			v.cosigned(p, payload)
			change(p)
		})
	}

	return []specVector{
		cosigned("cosigned, and no witness asked for", "ok", nil, func(*Proof) {}),
		cosigned("cosigned by one witness that is asked for", "ok", []string{beta}, func(*Proof) {}),
		cosigned("cosigned by both witnesses", "ok", []string{beta, gamma}, func(*Proof) {}),
		cosigned("without a witness that is asked for", "witness", []string{beta, delta}, func(*Proof) {}),
		cosigned("a cosignature of another time", "witness", []string{beta}, func(p *Proof) {
			line(p, 1, func(s *checkpoint.Signature) { s.Bytes[7]++ })
		}),
		cosigned("a cosignature without a time", "witness", []string{beta}, func(p *Proof) {
			line(p, 1, func(s *checkpoint.Signature) { clear(s.Bytes[:8]) })
		}),
		cosigned("a forged cosignature", "witness", []string{gamma}, func(p *Proof) {
			line(p, 2, func(s *checkpoint.Signature) { s.Bytes[70] ^= 1 })
		}),
		cosigned("a cosignature by a witness under the name of another", "witness", []string{gamma}, func(p *Proof) {
			line(p, 2, func(s *checkpoint.Signature) { s.Name = "beta.test/w" })
		}),
		cosigned("a line of an unknown type", "ok", []string{beta}, func(p *Proof) {
			p.Checkpoint += checkpoint.Signature{Name: "later.test", ID: 7, Bytes: []byte("of a later type")}.String()
		}),
		cosigned("two lines by one key", "inclusion", []string{beta}, func(p *Proof) {
			p.Checkpoint += p.Checkpoint[strings.LastIndex(strings.TrimSuffix(p.Checkpoint, "\n"), "\n")+1:]
		}),
		cosigned("a cosignature line cut short", "inclusion", []string{beta}, func(p *Proof) {
			p.Checkpoint = strings.TrimSuffix(p.Checkpoint, "\n")
		}),
		cosigned("a checkpoint whose size has a zero before it", "inclusion", nil, func(p *Proof) {
			p.Checkpoint = strings.Replace(p.Checkpoint, "\n10\n", "\n010\n", 1)
		}),
		vector("not logged, with a witness that is asked for", "witness", []string{beta}, func(*Proof) {}),
	}
}

// staples are proof files as they travel with their agents.
func (v *vectorMaker) staples() []specVector {
	put := v.change(signed.OpPut)
	payload, shown := v.statement(&put)
	page := v.page()
	digest := page.Digests[slices.IndexFunc(page.Digests, func(d signed.Digest) bool { return d.RID == put.RID })]
	page.From, page.To, page.Digests = digest.Revision-1, digest.Revision, []signed.Digest{digest}
	others := v.page()

	good := func() *Proof {
		record := signed.Record{JWS: v.sign("one", signed.TypeRecord, payload), Disclosures: shown}

		return &Proof{Record: record.String(),
			Page: v.sign("one", signed.TypePage, page.Payload()), Attestation: v.doc.Keys[0].Attestations[0]}
	}
	staple := func(name, verdict string, change func(*Proof)) specVector {
		p := good()
		change(p)

		return specVector{Name: name, Verdict: verdict, Text: string(encodeCompact(p))}
	}
	paged := func(change func(*signed.Page)) func(*Proof) {
		return func(p *Proof) {
			changed := page
			changed.Digests = slices.Clone(page.Digests)
			change(&changed)
			p.Page = v.sign("one", signed.TypePage, changed.Payload())
		}
	}
	later := func(name, verdict string, seconds int64) specVector {
		vector := staple(name, verdict, func(*Proof) {})
		vector.At = vectorTime + seconds

		return vector
	}
	thief := v.keys["stranger"]
	forge := func(jws string) string {
		dot := strings.LastIndexByte(jws, '.')
		return jws[:dot+1] + flipped(jws[dot+1:])
	}
	stranger := v.svid(v.authority("another authority"), "/roster/node/1", vectorKey("SVID 3"))

	return []specVector{
		staple("a staple", "ok", func(*Proof) {}),
		later("a second short of half an hour old", "ok", 1799),
		later("half an hour old", "expired", 1800),
		staple("dated a minute ahead", "ok", paged(func(p *signed.Page) { p.IssuedAt = vectorTime + 120 })),
		staple("dated more than a minute ahead", "format", paged(func(p *signed.Page) {
			p.IssuedAt = vectorTime + 121
		})),
		staple("a deadline that has passed", "expired", paged(func(p *signed.Page) {
			p.Digests[0].Deadline = vectorTime + 60
		})),
		staple("a page that begins earlier", "format", paged(func(p *signed.Page) { p.From-- })),
		staple("a page that goes on", "format", paged(func(p *signed.Page) { p.To++; p.At = max(p.At, p.To) })),
		staple("a page of several registrations", "format", func(p *Proof) {
			p.Page = v.sign("one", signed.TypePage, others.Payload())
		}),
		staple("a page of another statement", "format", paged(func(p *signed.Page) {
			p.Digests[0].H = directory.Hash{1}
		})),
		staple("a page that says that it has ended", "format", paged(func(p *signed.Page) {
			p.Digests[0] = signed.Digest{RID: digest.RID, Revision: digest.Revision, Op: signed.OpEnd, H: digest.H}
		})),
		staple("over 6 KiB", "format", func(p *Proof) {
			p.Ext = []byte(`{"a":"` + strings.Repeat("x", MaxStaple) + `"}`)
		}),
		staple("keys beside the attestation", "format", func(p *Proof) { p.Keys = v.keyDoc }),
		staple("a bundle beside the attestation", "format", func(p *Proof) { p.Bundle = []byte(`{"keys":[]}`) }),
		staple("neither keys nor an attestation", "format", func(p *Proof) { p.Attestation = "" }),
		staple("a page in place of the attestation", "format", func(p *Proof) { p.Attestation = p.Page }),
		staple("a page by a key that is not attested", "key", func(p *Proof) {
			p.Page = v.sign("two", signed.TypePage, page.Payload())
		}),
		staple("a record by a key that is not attested", "key", func(p *Proof) {
			p.Record = signed.Record{JWS: v.sign("two", signed.TypeRecord, payload), Disclosures: shown}.String()
		}),
		staple("an attestation of another key", "key", func(p *Proof) {
			p.Attestation = v.doc.Keys[1].Attestations[0]
		}),
		staple("attested under another authority", "key", func(p *Proof) {
			attested, err := v.keys["one"].Attest(stranger, time.Unix(vectorTime, 0))
			must(v.t, err)
			p.Attestation = attested
		}),
		staple("a thief's key, attested under another authority", "key", func(p *Proof) {
			attested, err := thief.Attest(stranger, time.Unix(vectorTime, 0))
			must(v.t, err)
			p.Attestation = attested
			p.Page = v.sign("stranger", signed.TypePage, page.Payload())
			p.Record = signed.Record{JWS: v.sign("stranger", signed.TypeRecord, payload), Disclosures: shown}.String()
		}),
		staple("a page with a forged signature", "signature", func(p *Proof) { p.Page = forge(p.Page) }),
		staple("a disclosure withheld", "format", func(p *Proof) {
			p.Record = signed.Record{JWS: v.sign("one", signed.TypeRecord, payload), Disclosures: shown[1:]}.String()
		}),
	}
}

// imposture is the key document with the same keys, attested under an authority that
// the reader doesn't believe.
func (v *vectorMaker) imposture() string {
	v.t.Helper()
	node := v.svid(v.authority("another authority"), "/roster/node/1", vectorKey("SVID 3"))
	doc := *v.doc

	doc.Keys = slices.Clone(v.doc.Keys)
	for i, name := range []string{"one", "two"} {
		attested, err := v.keys[name].Attest(node, time.Unix(vectorTime, 0))
		must(v.t, err)
		doc.Keys[i].Node, doc.Keys[i].Attestations = node.ID, []string{attested}
	}

	return v.sign("one", signed.TypeKeys, doc.Payload())
}

// log adds the statement to a ledger of ten leaves.
func (v *vectorMaker) log(p *Proof, payload []byte) { v.logBy(p, payload, "one") }

func (v *vectorMaker) logBy(p *Proof, payload []byte, signer string) {
	v.t.Helper()
	stored := map[int64]tlog.Hash{}
	read := tlog.HashReaderFunc(func(at []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(at))
		for i, n := range at {
			out[i] = stored[n]
		}

		return out, nil
	})

	const leaf, size = 3, 10
	for n := range int64(size) {
		digest := directory.HashOf(fmt.Append(nil, n))
		if n == leaf {
			digest = directory.HashOf(payload)
		}

		hashes, err := tlog.StoredHashes(n, append([]byte{leafStatement}, digest[:]...), read)
		must(v.t, err)

		for i, h := range hashes {
			stored[tlog.StoredHashIndex(0, n)+int64(i)] = h
		}
	}

	root, err := tlog.TreeHash(size, read)
	must(v.t, err)
	path, err := tlog.ProveRecord(size, leaf, read)
	must(v.t, err)

	const origin = "alpha.test/roster/1780000000"
	text := fmt.Sprintf("%s\n%d\n%s\n", origin, size, base64.StdEncoding.EncodeToString(root[:]))
	p.Checkpoint = signNote(v.keys[signer], origin, text)
	index := uint64(leaf)

	p.Index = &index
	for _, h := range path {
		p.Path = append(p.Path, directory.Hash(h))
	}
}
