// Package operatorproof makes and reads the proof by which an operator orders a change of a
// domain (docs/trust.md, "Operator commands"): a compact JWS by the operator's own key, in the
// shape of a WIMSE proof token, over one request.
//
//	text, err := operatorproof.Make(certificate, operatorproof.Request{…}, time.Now())
//	r.Header.Set(operatorproof.Header, text)
//
//	proof, err := operatorproof.Parse(text)
//	err = proof.VerifySignature()          // by the key of proof.Chain[0]
//	err = proof.Covers(request, time.Now())
//
// A caller verifies the chain itself, since it alone knows its anchors. The package imports the
// standard library and one JSON library, so that the Go client can make proofs.
package operatorproof

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/limit/certs"
)

// Header is the name of the header field that has a proof.
const Header = "Roster-Operator-Proof"

const (
	typ = "roster-op+jwt"
	// life is the longest lifetime of a proof.
	life = 60 * time.Second
	// Skew is how far a signer's clock may be before the verifier's.
	Skew = 60 * time.Second
	// maxSize bounds a proof, in bytes: a chain of certificates is the largest part.
	maxSize = 16 << 10

	maxText = 2048 // of each claim
)

// A Request is the part of an HTTP request that a proof covers.
type Request struct {
	Domain string // the trust domain whose directory is asked
	Method string
	URL    string // absolute when a proof is made; path and query decide when it is checked
	Body   [sha256.Size]byte
}

// A Proof is a parsed proof. Nothing of it is verified by Parse.
type Proof struct {
	Chain   []*x509.Certificate // leaf first
	ID      string              // unique for the signer while the proof holds
	Expires time.Time

	claims    claims
	signed    string // the text before the signature
	signature []byte
	alg       string
}

type header struct {
	Alg string   `json:"alg"`
	Typ string   `json:"typ"`
	X5C []string `json:"x5c"`
}

type claims struct {
	Audience string `json:"aud"`
	Method   string `json:"htm"`
	URL      string `json:"htu"`
	BodyHash string `json:"bh"`
	Issued   int64  `json:"iat"`
	Expires  int64  `json:"exp"`
	ID       string `json:"jti"`
}

var b64 = base64.RawURLEncoding.Strict()

// errProof means that a proof does not hold.
var errProof = errors.New("invalid operator's proof")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errProof, fmt.Errorf(format, args...))
}

// Make signs a proof for one request by the key of a certificate. It is valid from now on for
// life/2; the rest of life allows for clocks that differ.
func Make(by *tls.Certificate, request Request, now time.Time) (string, error) {
	key, ok := by.PrivateKey.(crypto.Signer)
	if !ok || len(by.Certificate) == 0 {
		return "", errors.New("the certificate has no key that signs")
	}

	alg, err := certs.AlgorithmOf(key.Public())
	if err != nil {
		return "", err
	}

	head := header{Alg: alg, Typ: typ}
	for _, der := range by.Certificate {
		// The members of x5c are in standard base64, not in base64url (RFC 7515, 4.1.6).
		head.X5C = append(head.X5C, base64.StdEncoding.EncodeToString(der))
	}

	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails

	first, err := json.Marshal(head)
	if err != nil {
		return "", err
	}

	second, err := json.Marshal(claims{
		Audience: request.Domain, Method: request.Method, URL: request.URL,
		BodyHash: b64.EncodeToString(request.Body[:]),
		Issued:   now.Unix(), Expires: now.Add(life / 2).Unix(), ID: b64.EncodeToString(id[:]),
	})
	if err != nil {
		return "", err
	}

	text := b64.EncodeToString(first) + "." + b64.EncodeToString(second)

	signature, err := sign(key, alg, text)
	if err != nil {
		return "", fmt.Errorf("sign the operator's proof: %w", err)
	}

	return text + "." + b64.EncodeToString(signature), nil
}

// Parse takes a proof apart. It accepts the one form that Make writes: exactly its members,
// each once, and canonical base64url.
func Parse(text string) (*Proof, error) {
	if len(text) > maxSize {
		return nil, refuse("it has %d bytes; at most %d are allowed", len(text), maxSize)
	}

	parts := strings.Split(text, ".")

	// The decoder would skip line breaks.
	if len(parts) != 3 || strings.ContainsAny(text, "\r\n") {
		return nil, refuse("it is no compact JWS")
	}

	var (
		head  header
		proof Proof
	)
	if err := decode(parts[0], &head); err != nil {
		return nil, refuse("its header: %w", err)
	}

	if err := decode(parts[1], &proof.claims); err != nil {
		return nil, refuse("its claims: %w", err)
	}

	signature, err := b64.DecodeString(parts[2])
	if err != nil {
		return nil, refuse("its signature is not in base64url")
	}

	if head.Typ != typ {
		return nil, refuse("typ is not %s", typ)
	}

	if proof.Chain, err = parseChain(head.X5C); err != nil {
		return nil, err
	}

	c := &proof.claims
	for _, claim := range []string{c.Audience, c.Method, c.URL, c.BodyHash, c.ID} {
		if claim == "" || len(claim) > maxText {
			return nil, refuse("a claim is empty or has over %d bytes", maxText)
		}
	}

	proof.ID = c.ID
	proof.Expires = time.Unix(c.Expires, 0)

	// The signature covers the text as it was received, so nothing is encoded again.
	proof.signed = parts[0] + "." + parts[1]
	proof.signature = signature
	proof.alg = head.Alg

	return &proof, nil
}

func decode(part string, into any) error {
	raw, err := b64.DecodeString(part)
	if err != nil {
		return errors.New("not in base64url")
	}

	return json.Unmarshal(raw, into, json.RejectUnknownMembers(true))
}

func parseChain(texts []string) ([]*x509.Certificate, error) {
	if len(texts) == 0 || len(texts) > certs.MaxChain {
		return nil, refuse("x5c must have 1 to %d certificates", certs.MaxChain)
	}

	chain := make([]*x509.Certificate, len(texts))
	for i, text := range texts {
		der, err := base64.StdEncoding.Strict().DecodeString(text)
		if err != nil {
			return nil, refuse("x5c is not in base64")
		}

		if chain[i], err = x509.ParseCertificate(der); err != nil {
			return nil, refuse("x5c: %w", err)
		}
	}

	// CheckChain bounds the keys of signers; the leaf's own key verifies the proof.
	if !certs.IsAffordable(chain[0].PublicKey) {
		return nil, refuse("x5c has an RSA key that is too large to verify")
	}

	if err := certs.CheckChain(chain); err != nil {
		return nil, refuse("x5c: %w", err)
	}

	return chain, nil
}

// VerifySignature checks the signature by the key of the leaf.
func (p *Proof) VerifySignature() error {
	key := p.Chain[0].PublicKey

	alg, err := certs.AlgorithmOf(key)
	if err != nil {
		return refuse("%w", err)
	}

	// The certificate decides the algorithm: a header must not choose another one for its key.
	if p.alg != alg {
		return refuse("alg is not %s, which the certificate's key has", alg)
	}

	if !verify(key, alg, p.signed, p.signature) {
		return refuse("its signature is wrong")
	}

	return nil
}

// Covers checks that the proof is for a request at a time. The host of the URL is not
// compared, because every node of the domain takes the request.
func (p *Proof) Covers(request Request, at time.Time) error {
	c := &p.claims
	issued := time.Unix(c.Issued, 0)

	signed, err := url.Parse(c.URL)
	if err != nil || signed.Scheme != "https" || signed.Host == "" {
		return refuse("htu is no URL of a directory")
	}

	asked, err := url.Parse(request.URL)
	if err != nil {
		return refuse("the request's URL: %w", err)
	}

	switch {
	case c.Audience != request.Domain:
		return refuse("aud is %q, and this domain is %s", c.Audience, request.Domain)
	case c.Method != request.Method:
		return refuse("htm is %q, and the request's method is %s", c.Method, request.Method)
	case signed.EscapedPath() != asked.EscapedPath() || signed.RawQuery != asked.RawQuery:
		return refuse("htu is of another path or query than the request")
	case c.BodyHash != b64.EncodeToString(request.Body[:]):
		return refuse("bh is the hash of another body")
	case p.Expires.Sub(issued) > life || !issued.Before(p.Expires):
		return refuse("it holds for longer than %s", life)
	case issued.After(at.Add(Skew)):
		return refuse("iat is %s ahead; synchronise the clocks", issued.Sub(at).Round(time.Second))
	case !at.Before(p.Expires):
		return refuse("it ended %s ago; make a new one for each request", at.Sub(p.Expires).Round(time.Second))
	}

	return nil
}

// BodyHash returns the SHA-256 that the proof claims of the body; zero if it claims none.
func (p *Proof) BodyHash() (hash [sha256.Size]byte) {
	if raw, err := b64.DecodeString(p.claims.BodyHash); err == nil && len(raw) == len(hash) {
		copy(hash[:], raw)
	}

	return hash
}

func sign(key crypto.Signer, alg, text string) ([]byte, error) {
	digest, hash := digestOf(alg, text)

	signature, err := key.Sign(rand.Reader, digest, hash)
	if err != nil {
		return nil, err
	}

	public, ok := key.Public().(*ecdsa.PublicKey)
	if !ok {
		return signature, nil
	}

	return fixedSize(signature, (public.Params().BitSize+7)/8)
}

func verify(key crypto.PublicKey, alg, text string, signature []byte) bool {
	digest, hash := digestOf(alg, text)

	switch key := key.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(key, digest, signature)
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, hash, digest, signature) == nil
	case *ecdsa.PublicKey:
		size := (key.Params().BitSize + 7) / 8
		if len(signature) != 2*size {
			return false
		}

		r, s := new(big.Int).SetBytes(signature[:size]), new(big.Int).SetBytes(signature[size:])

		return ecdsa.Verify(key, digest, r, s)
	}

	return false
}

// digestOf returns the bytes that a key of the algorithm signs, and their hash function.
func digestOf(alg, text string) ([]byte, crypto.Hash) {
	switch alg {
	case "EdDSA":
		return []byte(text), crypto.Hash(0)
	case "ES384":
		digest := sha512.Sum384([]byte(text))
		return digest[:], crypto.SHA384
	}

	digest := sha256.Sum256([]byte(text))

	return digest[:], crypto.SHA256
}

// fixedSize turns an ECDSA signature in ASN.1, as a crypto.Signer makes it, into the form of
// JWS: r and s, each of size bytes (RFC 7518, 3.4).
func fixedSize(signature []byte, size int) ([]byte, error) {
	var values struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(signature, &values); err != nil {
		return nil, err
	}

	fixed := make([]byte, 2*size)
	values.R.FillBytes(fixed[:size])
	values.S.FillBytes(fixed[size:])

	return fixed, nil
}
