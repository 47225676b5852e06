package signed_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/signed"
)

// The key of RFC 8037, appendix A.2, and its thumbprint, A.3.
const (
	rfc8037Public     = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
	rfc8037Thumbprint = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
)

func publicKey(t testing.TB, text string) ed25519.PublicKey {
	b, err := hex.DecodeString(text)
	must(t, err)

	return b
}

func keyDocument(t testing.TB) *signed.KeyDocument {
	second := publicKey(t, strings.Repeat("01", 32))

	return &signed.KeyDocument{
		Issuer: alpha, Epoch: noon, Seq: 12, Expires: noon + signed.KeyDocumentLifetime,
		Mesh: []spiffeid.TrustDomain{beta, gamma}, Revoked: []string{hash("gone").String()},
		Keys: []signed.SigningKey{
			{Public: publicKey(t, rfc8037Public),
				Node:         spiffeid.RequireFromString("spiffe://alpha.test/roster/node/a"),
				Attestations: []string{"e30.e30.AA", "e30.e30.AQ"}},
			{Public: second, Node: spiffeid.RequireFromString("spiffe://alpha.test/roster/node/b"),
				Attestations: []string{"e30.e30.Ag"}},
		},
	}
}

func TestKeyDocumentFormat(t *testing.T) {
	k := keyDocument(t)
	golden(t, "keys.json", k.Payload())

	back, err := signed.ParseKeyDocument(k.Payload())
	if err != nil || !reflect.DeepEqual(back, k) {
		t.Errorf("got %+v, %v", back, err)
	}

	bare := &signed.KeyDocument{Issuer: alpha}
	golden(t, "keys-empty.json", bare.Payload())

	if _, err := signed.ParseKeyDocument(bare.Payload()); err != nil {
		t.Error(err)
	}
}

func TestKeyIDIsTheThumbprint(t *testing.T) {
	if got := signed.KeyID(publicKey(t, rfc8037Public)); got != rfc8037Thumbprint {
		t.Errorf("got %s, want %s", got, rfc8037Thumbprint)
	}
}

func TestKeyDocumentFindsKeys(t *testing.T) {
	k := keyDocument(t)
	if key, err := k.Key(rfc8037Thumbprint); err != nil || key.Node.Path() != "/roster/node/a" {
		t.Errorf("got %v, %v", key, err)
	}

	if _, err := k.Key("x"); !errors.Is(err, signed.ErrKeyUnknown) {
		t.Errorf("unknown: %v", err)
	}

	k.Revoked = append(k.Revoked, rfc8037Thumbprint)
	if _, err := k.Key(rfc8037Thumbprint); !errors.Is(err, signed.ErrKeyRevoked) {
		t.Errorf("revoked: %v", err)
	}
}

func TestAKeyThatANodeHadSignsNoMore(t *testing.T) {
	k := keyDocument(t)
	a, b := k.Keys[0], k.Keys[1]
	had := signed.SigningKey{Public: publicKey(t, strings.Repeat("02", 32)), Node: a.Node}

	k.Keys = append(k.Keys, had)
	for _, tc := range []struct {
		node  spiffeid.ID
		id    string
		signs bool
	}{
		{a.Node, a.KeyID(), true}, {b.Node, b.KeyID(), true}, {a.Node, had.KeyID(), false}, {a.Node, b.KeyID(), false},
		{spiffeid.RequireFromPath(alpha, "/roster/node/c"), a.KeyID(), false},
	} {
		if got := k.SignsBy(tc.node, tc.id); got != tc.signs {
			t.Errorf("%s signs by %s: %v", tc.node, tc.id, got)
		}
	}
}

func TestParseKeyDocumentRefuses(t *testing.T) {
	good := string(keyDocument(t).Payload())
	twice := keyDocument(t)

	twice.Keys[1].Public = twice.Keys[0].Public
	for name, bad := range map[string]string{
		"nothing":           "",
		"a space":           strings.Replace(good, ":", ": ", 1),
		"an unknown member": strings.Replace(good, `{"jwk"`, `{"x":1,"jwk"`, 1),
		"a private key":     strings.Replace(good, `"crv"`, `"d":"AA","crv"`, 1),
		"another curve":     strings.Replace(good, "Ed25519", "Ed448", 1),
		"a short key":       strings.Replace(good, `"x":"11`, `"x":"`, 1),
		"another domain's node": strings.Replace(good, "spiffe://alpha.test/roster/node/b",
			"spiffe://beta.test/roster/node/b", 1),
		"a node that is none": strings.Replace(good, "spiffe://alpha.test/roster/node/b", "node b", 1),
		"a peer that is none": strings.Replace(good, `"beta.test"`, `"BETA"`, 1),
		"a peer as an ID":     strings.Replace(good, `"beta.test"`, `"spiffe://beta.test"`, 1),
		"a null list":         strings.Replace(good, `"revoked":["`+hash("gone").String()+`"]`, `"revoked":null`, 1),
		"a key twice":         string(twice.Payload()),
		"a bare issuer":       strings.Replace(good, `"spiffe://alpha.test"`, `"alpha.test"`, 1),
		"two documents":       good + good,
	} {
		t.Run(name, func(t *testing.T) {
			if bad == good {
				t.Fatal("the case changes nothing")
			}

			if _, err := signed.ParseKeyDocument([]byte(bad)); err == nil {
				t.Errorf("read %s", bad)
			}
		})
	}
}
