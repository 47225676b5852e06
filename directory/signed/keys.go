package signed

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// The JWS types of all that a domain signs (federation.md, "Bytes").
const (
	TypeRecord      = "adrec+sd-jwt"
	TypePage        = "adpage+jws"
	TypeHead        = "adhead+jws"
	TypeKeys        = "adkeys+jws"
	TypeAttestation = "adattest+jws"
)

// A SigningKey is a node's Ed25519 key in its domain's key document, with the
// attestations that its node's SVIDs signed.
type SigningKey struct {
	Public       ed25519.PublicKey
	Node         spiffeid.ID
	Cosign       ed25519.PublicKey // by which the node cosigns other domains' ledgers; nil if it has none
	Attestations []string          // compact JWS, typ adattest+jws; the newest last
}

// KeyID returns the key's RFC 7638 thumbprint.
func (k SigningKey) KeyID() string { return KeyID(k.Public) }

// KeyID returns the RFC 7638 thumbprint of an Ed25519 key (RFC 8037).
func KeyID(public ed25519.PublicKey) string { return directory.HashOf(AppendJWK(nil, public)).String() }

// AppendJWK appends the JWK of an Ed25519 key with its required members alone.
func AppendJWK(data []byte, public ed25519.PublicKey) []byte {
	data = strictjson.AppendText(append(data, '{'), "crv", "Ed25519")
	data = strictjson.AppendText(data, "kty", "OKP")

	return append(strictjson.AppendText(data, "x", directory.B64.EncodeToString(public)), '}')
}

// A KeyDocument says which keys speak for a domain, and which domains may have
// its mesh stream. Each issue of it is a committed change of the domain.
type KeyDocument struct {
	Issuer  spiffeid.TrustDomain
	Epoch   uint64
	Seq     uint64 // its revision
	Expires int64  // Unix seconds
	Mesh    []spiffeid.TrustDomain
	Revoked []string // key ids
	// Formats are the formats that every member of the domain reads.
	Formats Formats
	Keys    []SigningKey // one for each node that signs; then recently replaced keys
	// Extension has no critical names: a key document that some readers couldn't
	// adopt would cut the domain off from them.
	Extension Extension
}

// LogOrigin returns the name of the ledger of the document's epoch.
func (k *KeyDocument) LogOrigin() string { return directory.LogName(k.Issuer, k.Epoch) }

// WitnessName returns the name of the key by which a node cosigns checkpoints in the document's epoch.
func (k *KeyDocument) WitnessName(node spiffeid.ID) string {
	return k.LogOrigin() + "/witness" + node.Path()
}

// KeyDocumentLifetime is how long a key document holds, at most, in seconds.
const KeyDocumentLifetime = 24 * 3600

// MaxSigningKeys is how many keys a key document lists, at most: those of a domain's
// nodes, and those that were rotated a moment ago.
const MaxSigningKeys = 64

// Payload returns the one encoding of k.
func (k *KeyDocument) Payload() []byte {
	return append(k.Extension.Append(k.listed()), '}')
}

// listed returns the members that the format lists, without a closing brace.
func (k *KeyDocument) listed() []byte {
	data := strictjson.AppendUint([]byte{'{'}, "v", 1)
	data = strictjson.AppendText(data, "iss", k.Issuer.IDString())
	data = strictjson.AppendUint(data, "epoch", k.Epoch)
	data = strictjson.AppendUint(data, "seq", k.Seq)
	data = strconv.AppendInt(strictjson.AppendName(data, "exp"), k.Expires, 10)

	mesh := make([]string, len(k.Mesh))
	for i, td := range k.Mesh {
		mesh[i] = td.Name()
	}

	data = strictjson.AppendRaw(data, "mesh", strictjson.AppendStrings(nil, mesh))

	data = strictjson.AppendRaw(data, "revoked", strictjson.AppendStrings(nil, k.Revoked))

	// A document that says nothing by the member has the encoding of one without it.
	if formats := k.Formats.Normal(); len(formats) > 0 {
		data = strictjson.AppendRaw(data, "formats", AppendFormats(nil, formats))
	}

	data = append(strictjson.AppendName(data, "keys"), '[')
	for i, key := range k.Keys {
		if i > 0 {
			data = append(data, ',')
		}

		data = strictjson.AppendRaw(append(data, '{'), "jwk", AppendJWK(nil, key.Public))

		data = strictjson.AppendText(data, "node", key.Node.String())
		if key.Cosign != nil {
			data = strictjson.AppendText(data, "cosign", directory.B64.EncodeToString(key.Cosign))
		}

		data = append(strictjson.AppendRaw(data, "attestations", strictjson.AppendStrings(nil, key.Attestations)), '}')
	}

	return append(data, ']')
}

// Key returns the key of that id, unless it is absent or revoked.
func (k *KeyDocument) Key(id string) (SigningKey, error) {
	// A revoked key may still be listed.
	if slices.Contains(k.Revoked, id) {
		return SigningKey{}, ErrKeyRevoked
	}

	for _, key := range k.Keys {
		if key.KeyID() == id {
			return key, nil
		}
	}

	return SigningKey{}, fmt.Errorf("%w: the key document does not list it", ErrKeyUnknown)
}

// The reasons for which any verifier rejects a signature.
var (
	ErrKeyUnknown = errors.New("unknown key")
	ErrKeyRevoked = errors.New("the key is revoked")
	ErrSignature  = errors.New("signature verification failed")
	ErrHeader     = errors.New("the JWS header is not exactly the one expected")
)

// SignsBy reports whether the key of that id is the one by which a node signs now, and not one
// that was replaced recently.
func (k *KeyDocument) SignsBy(node spiffeid.ID, id string) bool {
	i := slices.IndexFunc(k.Keys, func(key SigningKey) bool { return key.Node == node })
	return i >= 0 && k.Keys[i].KeyID() == id
}

// ParseKeyDocument reads a key document's payload and refuses any bytes that no
// writer makes. Who signed it is for package trust to check.
func ParseKeyDocument(payload []byte) (*KeyDocument, error) {
	var w struct {
		Iss     string    `json:"iss"`
		Epoch   uint64    `json:"epoch"`
		Seq     uint64    `json:"seq"`
		Exp     int64     `json:"exp"`
		Mesh    []string  `json:"mesh"`
		Revoked []string  `json:"revoked"`
		Formats Formats   `json:"formats"`
		Keys    []wireKey `json:"keys"`
	}
	if err := json.Unmarshal(payload, &w); err != nil {
		return nil, fmt.Errorf("not a key document: %w", err)
	}

	k := &KeyDocument{Epoch: w.Epoch, Seq: w.Seq, Expires: w.Exp, Revoked: w.Revoked, Formats: w.Formats}

	var err error
	if k.Issuer, err = spiffeid.TrustDomainFromString(w.Iss); err != nil {
		return nil, fmt.Errorf("not a key document: %w", err)
	}

	for _, name := range w.Mesh {
		td, err := spiffeid.TrustDomainFromString(name)
		if err != nil {
			return nil, fmt.Errorf("not a key document: %w", err)
		}

		k.Mesh = append(k.Mesh, td)
	}

	for _, listed := range w.Keys {
		key, err := listed.parse(k.Issuer)
		if err != nil {
			return nil, fmt.Errorf("not a key document: %w", err)
		}

		k.Keys = append(k.Keys, key)
	}

	// A key of two nodes would leave open which of them has signed.
	if id, twice := k.twice(); twice {
		return nil, fmt.Errorf("not a key document: the key %s is listed twice", id)
	}

	if err := k.Formats.Validate(); err != nil {
		return nil, fmt.Errorf("not a key document: %w", err)
	}

	// The listed members are encoded again, because json accepts other orders, white space and members.
	if k.Extension, err = ExtensionBehind(k.listed(), payload); err != nil {
		return nil, fmt.Errorf("not a key document: %w", err)
	}

	if k.Extension.Critical() != nil {
		return nil, errors.New("not a key document: it has crit")
	}

	return k, nil
}

// A wireKey is a key as a key document lists it.
type wireKey struct {
	JWK struct {
		X string `json:"x"`
	} `json:"jwk"`
	Node         string   `json:"node"`
	Cosign       string   `json:"cosign"`
	Attestations []string `json:"attestations"`
}

// parse reads a listed key, which must be of a node of the issuer.
func (w *wireKey) parse(issuer spiffeid.TrustDomain) (key SigningKey, err error) {
	key.Attestations = w.Attestations

	key.Public, err = directory.B64.DecodeString(w.JWK.X)
	if err != nil || len(key.Public) != ed25519.PublicKeySize {
		return key, errors.New("a key is not Ed25519")
	}

	if key.Cosign, err = parseCosign(w.Cosign); err != nil {
		return key, err
	}

	if key.Node, err = spiffeid.FromString(w.Node); err != nil {
		return key, err
	}

	if !key.Node.MemberOf(issuer) {
		return key, errors.New("a key is of another domain's node")
	}

	return key, nil
}

// parseCosign reads a cosigning key; "" means no key.
func parseCosign(text string) (ed25519.PublicKey, error) {
	if text == "" {
		return nil, nil
	}

	key, err := directory.B64.DecodeString(text)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, errors.New("a cosigning key is not Ed25519")
	}

	return key, nil
}

// twice returns the id of a key that is listed more than once.
func (k *KeyDocument) twice() (string, bool) {
	seen := map[string]bool{}
	for _, key := range k.Keys {
		id := key.KeyID()
		if seen[id] {
			return id, true
		}

		seen[id] = true
	}

	return "", false
}
