package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/limit/certs"
	"github.com/roster-mesh/roster/trust/compact"
)

const maxAttestation = 32 << 10

// MaxClockSkew is how far a signer's clock may be before ours (rule G6).
const MaxClockSkew = 60 * time.Second

var errAttestation = errors.New("invalid attestation")

// Attest returns the JWS in which the node's SVID attests k as the node's signing key:
// typ adattest+jws, its chain in x5c, over {domain, node, jwk, time} (trust.md, "Signing
// keys"). The algorithm follows the SVID's key.
func (k *Key) Attest(svid *x509svid.SVID, now time.Time) (string, error) {
	if !IsNode(svid.ID, svid.ID.TrustDomain()) {
		return "", fmt.Errorf("attest the signing key: %s is not a node's ID: nodes have %sNAME", svid.ID, NodePath)
	}

	alg, err := certs.AlgorithmOf(svid.PrivateKey.Public())
	if err != nil {
		return "", fmt.Errorf("attest the signing key: %w", err)
	}

	chain := make([]string, len(svid.Certificates))
	for i, c := range svid.Certificates {
		// The members of x5c are in standard base64, not in base64url (RFC 7515, 4.1.6).
		chain[i] = base64.StdEncoding.EncodeToString(c.Raw)
	}

	options := (&jose.SignerOptions{}).WithType(signed.TypeAttestation).WithHeader("x5c", chain)

	key := jose.SigningKey{Algorithm: jose.SignatureAlgorithm(alg), Key: svid.PrivateKey}

	signer, err := jose.NewSigner(key, options)
	if err != nil {
		return "", fmt.Errorf("attest the signing key: %w", err)
	}

	a := attestation{node: svid.ID, public: k.Public(), time: now.Unix()}

	signed, err := signer.Sign(a.payload())
	if err != nil {
		return "", fmt.Errorf("attest the signing key: %w", err)
	}

	jws, err := signed.CompactSerialize()
	if err != nil {
		return "", err
	}

	// The signer makes either twin of an ECDSA signature, and verifyLeaf refuses the one with the higher s.
	return lowS(jws, svid.PrivateKey.Public()), nil
}

// An attestation holds the contents of an attestation's JWS.
type attestation struct {
	node   spiffeid.ID
	public ed25519.PublicKey
	time   int64 // Unix seconds

	extension signed.Extension
}

func (a *attestation) payload() []byte {
	return append(a.extension.Append(a.listed()), '}')
}

// listed returns the members that every attestation has, without a closing brace.
func (a *attestation) listed() []byte {
	data := strictjson.AppendText([]byte{'{'}, "domain", a.node.TrustDomain().Name())
	data = strictjson.AppendText(data, "node", a.node.String())
	data = strictjson.AppendRaw(data, "jwk", signed.AppendJWK(nil, a.public))

	return strictjson.AppendRaw(data, "time", strconv.AppendInt(nil, a.time, 10))
}

// parseAttestation reads an attestation's payload. It refuses bytes that no writer
// makes, and critical extensions that this release doesn't know.
func parseAttestation(payload []byte) (*attestation, error) {
	var w struct {
		Node string `json:"node"`
		JWK  struct {
			X string `json:"x"`
		} `json:"jwk"`
		Time int64 `json:"time"`
	}
	if err := json.Unmarshal(payload, &w); err != nil {
		return nil, fmt.Errorf("%w: %w", errAttestation, err)
	}

	a := &attestation{time: w.Time}

	var err error
	if a.node, err = spiffeid.FromString(w.Node); err != nil {
		return nil, fmt.Errorf("%w: %w", errAttestation, err)
	}

	if a.public, err = directory.B64.DecodeString(w.JWK.X); err != nil || len(a.public) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%w: its key is not Ed25519", errAttestation)
	}

	// The listed members are encoded again, because json accepts other orders, white space and members.
	if a.extension, err = signed.ExtensionBehind(a.listed(), payload); err != nil {
		return nil, fmt.Errorf("%w: %w", errAttestation, err)
	}

	err = signed.OwnDialect().Supports(signed.StructureAttestation, 1, a.extension)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAttestation, err)
	}

	return a, nil
}

// CheckAttestations refuses a node's signing key unless all of its attestations hold now, by the
// authorities of the node's domain.
func CheckAttestations(key signed.SigningKey, bundles *Bundles) error {
	for _, attestation := range key.Attestations {
		if _, err := verifyAttestation(attestation, key, key.Node.TrustDomain(), bundles, time.Now()); err != nil {
			return directory.Refuse(directory.BadRequest, "invalid attestation of the signing key of %s: %w",
				key.Node, err)
		}
	}

	return nil
}

// verifyAttestation checks that jws attests key at the time now, by an SVID that
// the domain's authorities certify then, and returns when that ends.
func verifyAttestation(jws string, key signed.SigningKey, td spiffeid.TrustDomain, b x509bundle.Source,
	now time.Time) (until time.Time, err error) {
	c, err := compact.Parse(jws, signed.TypeAttestation, maxAttestation, "alg", "typ", "x5c")
	if err != nil {
		return time.Time{}, err
	}

	chain, err := chainOf(c)
	if err != nil {
		return time.Time{}, err
	}

	attestation, err := parseAttestation(c.Payload)
	if err != nil {
		return time.Time{}, err
	}

	// A copied attestation must serve no other key, and no other node of the domain.
	if !IsNode(key.Node, td) || attestation.node != key.Node || !attestation.public.Equal(key.Public) {
		return time.Time{}, fmt.Errorf("%w: it is of another node or key", errAttestation)
	}

	if time.Unix(attestation.time, 0).After(now.Add(MaxClockSkew)) {
		return time.Time{}, fmt.Errorf("%w: it is of the future", errAttestation)
	}

	id, chains, err := x509svid.Verify(chain, b, x509svid.WithTime(now))
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", errAttestation, certs.ExplainAuthority(err))
	}

	// The bundle certifies agents as well, and a certificate may forbid its key to sign.
	if id != key.Node || !signs(chain[0]) {
		return time.Time{}, fmt.Errorf("%w: %s signed it, not %s", errAttestation, id, key.Node)
	}

	if err := verifyLeaf(jws, c, chain[0].PublicKey); err != nil {
		return time.Time{}, err
	}

	return expiryOf(chains), nil
}

// verifyLeaf checks the signature by the leaf's key. An ECDSA signature has a
// twin (r, n-s) that holds as well; only the one with the lower s is taken.
func verifyLeaf(jws string, c *compact.JWS, key crypto.PublicKey) error {
	want, err := certs.AlgorithmOf(key)
	if err != nil {
		return fmt.Errorf("%w: %w", errAttestation, err)
	}

	// The certificate decides the algorithm: a header must not choose another one for its key.
	if alg, err := c.Text("alg"); err != nil || alg != want {
		return fmt.Errorf("%w: alg is not %s, which the certificate's key has", signed.ErrHeader, want)
	}

	if public, ok := key.(*ecdsa.PublicKey); ok && highS(c.Signature, public) {
		return fmt.Errorf("%w: the twin of an ECDSA signature", signed.ErrSignature)
	}

	return compact.VerifySignature(jws, jose.SignatureAlgorithm(want), key)
}

// chainOf returns the certificates of x5c, each in canonical base64 (RFC 7515,
// 4.1.6).
func chainOf(c *compact.JWS) ([]*x509.Certificate, error) {
	var texts []string
	if err := json.Unmarshal(compact.Member(c.Header, "x5c"), &texts); err != nil || len(texts) == 0 {
		return nil, fmt.Errorf("%w: x5c is not a chain", signed.ErrHeader)
	}

	chain := make([]*x509.Certificate, len(texts))
	for i, text := range texts {
		// Even the strict decoder skips line breaks, by which one chain would have many encodings.
		der, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil || strings.ContainsAny(text, "\r\n") {
			return nil, fmt.Errorf("%w: x5c is not in base64", signed.ErrHeader)
		}

		if chain[i], err = x509.ParseCertificate(der); err != nil {
			return nil, fmt.Errorf("%w: x5c: %w", signed.ErrHeader, err)
		}
	}

	if err := certs.CheckChain(chain); err != nil {
		return nil, fmt.Errorf("%w: x5c: %w", signed.ErrHeader, err)
	}

	return chain, nil
}

func highS(signature []byte, key *ecdsa.PublicKey) bool {
	s := new(big.Int).SetBytes(signature[len(signature)/2:])
	return s.Lsh(s, 1).Cmp(key.Params().N) > 0
}

// lowS replaces an ECDSA signature by its twin if that is the one we take.
func lowS(jws string, key crypto.PublicKey) string {
	public, ok := key.(*ecdsa.PublicKey)
	if !ok {
		return jws
	}

	dot := strings.LastIndexByte(jws, '.')

	signature, err := directory.B64.DecodeString(jws[dot+1:])
	if err != nil || !highS(signature, public) {
		return jws
	}

	half := signature[len(signature)/2:]
	s := new(big.Int).SetBytes(half)
	s.Sub(public.Params().N, s).FillBytes(half)

	return jws[:dot+1] + directory.B64.EncodeToString(signature)
}

// expiryOf returns when the last of several chains ends.
func expiryOf(chains [][]*x509.Certificate) time.Time {
	var last time.Time
	for _, chain := range chains {
		// Any one chain is enough.
		if _, end := validityOf(chain); end.After(last) {
			last = end
		}
	}

	return last
}
