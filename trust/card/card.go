// Package card verifies signed A2A agent cards.
package card

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/trust/compact"
)

// Keys are the public keys that verify signed A2A agent cards. The verifier chooses
// them. A card's own reference to its keys (jku) is not read, because by it every card
// could vouch for itself.
type Keys struct{ keys []jose.JSONWebKey }

// ErrUnsigned means that an agent card has no signature.
var ErrUnsigned = errors.New("it is not signed")

// algorithms are the signatures that are accepted: by public keys, none of a broken algorithm.
var algorithms = []jose.SignatureAlgorithm{jose.ES256, jose.ES384, jose.ES512, jose.EdDSA, jose.RS256, jose.RS384,
	jose.RS512, jose.PS256, jose.PS384, jose.PS512}

// maxSignatures bounds the signatures of a card that are checked.
const maxSignatures = 16

// Add adds the keys of a text: a JWKS, one JWK, or public keys and certificates in
// PEM. It refuses secret keys: a verifier has no use for them.
func (k *Keys) Add(text []byte) error {
	var (
		set jose.JSONWebKeySet
		one jose.JSONWebKey
	)
	switch {
	case strings.Contains(string(text), "-----BEGIN "):
		return k.addPEM(text)
	case json.Unmarshal(text, &set) == nil && len(set.Keys) > 0:
	case one.UnmarshalJSON(text) == nil:
		set.Keys = []jose.JSONWebKey{one}
	default:
		return errors.New("neither a JWK or a set of them, nor PEM")
	}

	for _, key := range set.Keys {
		if !key.Valid() || !key.IsPublic() {
			return fmt.Errorf("the key %q is not a public key", key.KeyID)
		}
	}

	k.keys = append(k.keys, set.Keys...)

	return nil
}

func (k *Keys) addPEM(text []byte) error {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}

		var (
			key crypto.PublicKey
			err error
		)
		switch block.Type {
		case "PUBLIC KEY":
			key, err = x509.ParsePKIXPublicKey(block.Bytes)
		case "CERTIFICATE":
			var cert *x509.Certificate
			if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
				key = cert.PublicKey
			}
		default:
			err = fmt.Errorf("the PEM text holds a %s where public keys are expected", block.Type)
		}

		if err != nil {
			return err
		}

		k.keys, text = append(k.keys, jose.JSONWebKey{Key: key}), rest
	}

	if len(k.keys) == 0 {
		return errors.New("the PEM text holds no key")
	}

	return nil
}

// Verify checks the signatures of an agent card (A2A 1.0, 8.4), a JSON object, and
// returns the kid of the first that is valid by one of the keys. The error is
// ErrUnsigned, or the reason why none is valid.
func (k *Keys) Verify(card []byte) (kid string, err error) {
	members, err := directory.ParseObject(card)
	if err != nil {
		return "", err
	}

	var signatures []struct {
		Protected string `json:"protected"`
		Signature string `json:"signature"`
	}
	if raw := compact.Member(members, "signatures"); raw != nil {
		if err := json.Unmarshal(raw, &signatures); err != nil {
			return "", fmt.Errorf("its signatures can't be read: %w", err)
		}
	}

	if len(signatures) == 0 {
		return "", ErrUnsigned
	}

	members = slices.DeleteFunc(members, func(m strictjson.Member) bool { return m.Name == "signatures" })

	forms, err := canonicalForms(strictjson.AppendObject(nil, members))
	if err != nil {
		return "", err
	}

	// A stranger chooses their number, and each may cost a verification by every key.
	for _, s := range signatures[:min(len(signatures), maxSignatures)] {
		var held bool
		if kid, held, err = k.holds(s.Protected, s.Signature, forms); held {
			return kid, nil
		}
	}

	return "", err
}

// holds checks one signature over any of the forms.
func (k *Keys) holds(protected, signature string, forms [][]byte) (kid string, held bool, err error) {
	err = errors.New("none of the keys is the signer's")

	// The payload is made anew, because a card is signed in canonical form and not as it is written.
	for _, form := range forms {
		signed, parse := jose.ParseSignedCompact(protected+"."+directory.B64.EncodeToString(form)+"."+signature,
			algorithms)
		if parse != nil {
			return "", false, fmt.Errorf("its signature can't be read: %w", parse)
		}

		kid = signed.Signatures[0].Protected.KeyID
		for _, key := range k.keys {
			// A key without an id may be the one of any signature.
			if key.KeyID != "" && key.KeyID != kid {
				continue
			}

			if _, bad := signed.Verify(key.Key); bad == nil {
				return kid, true, nil
			}

			err = fmt.Errorf("its signature by %q is invalid", kid)
		}
	}

	return "", false, err
}

// canonicalForms returns the forms of a card that a signer may have signed (RFC 8785).
// They are the card as it is, the card without the defaults that Protocol Buffers leave
// out (A2A 1.0, 8.4.1), and the card without any empty value, as widely used libraries
// sign it. They differ by nothing but empty values.
func canonicalForms(card []byte) (forms [][]byte, err error) {
	for _, drop := range []func(path []string, v jsontext.Value) bool{
		func([]string, jsontext.Value) bool { return false },
		isImplied,
		func(_ []string, v jsontext.Value) bool { return isEmpty(v) || string(v) == "null" },
	} {
		form := prune(card, nil, drop)
		if err := form.Canonicalize(); err != nil {
			return nil, fmt.Errorf("it has no canonical form: %w", err)
		}

		if !slices.ContainsFunc(forms, func(b []byte) bool { return string(b) == string(form) }) {
			forms = append(forms, form)
		}
	}

	return forms, nil
}

func isEmpty(v jsontext.Value) bool { return slices.Contains([]string{`""`, `[]`, `{}`}, string(v)) }

// implied are the members of a card that have neither a required value nor a
// presence of their own, by where they are: an element of an array or a named
// member is a star.
var implied = []string{
	"supportedInterfaces/*/tenant", "securitySchemes", "securityRequirements", "capabilities/extensions",
	"capabilities/extensions/*/uri", "capabilities/extensions/*/description", "capabilities/extensions/*/required",
	"skills/*/examples", "skills/*/inputModes", "skills/*/outputModes", "skills/*/securityRequirements",
	"securitySchemes/*/*/description", "securitySchemes/*/*/bearerFormat", "securitySchemes/*/*/oauth2MetadataUrl",
	"securitySchemes/*/*/flows/*/refreshUrl", "securitySchemes/*/*/flows/*/pkceRequired",
}

// isImplied reports whether a member has its default value, which is left out.
func isImplied(path []string, v jsontext.Value) bool {
	return (isEmpty(v) || string(v) == "false") && slices.ContainsFunc(implied, func(pattern string) bool {
		names := strings.Split(pattern, "/")
		return slices.EqualFunc(names, path, func(name, at string) bool { return name == "*" || name == at })
	})
}

// prune returns a JSON value without the members and elements that are to be
// dropped, the innermost first.
func prune(v jsontext.Value, path []string, drop func([]string, jsontext.Value) bool) jsontext.Value {
	switch v.Kind() {
	case '{':
		members, err := directory.ParseObject(v)
		if err != nil {
			return v
		}

		kept := members[:0]
		for _, member := range members {
			// Without the clip, a sibling's name would be written into the path of this member.
			at := append(slices.Clip(path), member.Name)
			if member.Value = prune(member.Value, at, drop); !drop(at, member.Value) {
				kept = append(kept, member)
			}
		}

		return strictjson.AppendObject(nil, kept)
	case '[':
		var elements []jsontext.Value
		if json.Unmarshal(v, &elements) != nil {
			return v
		}

		out := []byte{'['}
		for _, e := range elements {
			at := append(slices.Clip(path), "*")
			if e = prune(e, at, drop); drop(at, e) {
				continue
			}

			if len(out) > 1 {
				out = append(out, ',')
			}

			out = append(out, e...)
		}

		return append(out, ']')
	}

	return v
}
