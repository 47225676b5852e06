package trust

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust/compact"
)

// vectorFile is what Wycheproof publishes for JWS.
type vectorFile struct {
	TestGroups []struct {
		Type   string          `json:"type"`
		Public json.RawMessage `json:"public"`
		Tests  []struct {
			ID     int             `json:"tcId"`
			JWS    json.RawMessage `json:"jws"`
			Result string          `json:"result"`
		} `json:"tests"`
	} `json:"testGroups"`
}

// joseText finds what looks like a compact JWS or JWE in any file.
var joseText = regexp.MustCompile(`[A-Za-z0-9_+/=-]*(\.[A-Za-z0-9_+/=-]*){2,4}`)

// TestVectors runs a directory of published JOSE vectors, which ROSTER_VECTORS
// names: whatever a vector calls invalid is refused under its own key, and none
// is taken for something that this mesh signed.
//
// Requirement: TRUST-011
func TestVectors(t *testing.T) {
	dir := os.Getenv("ROSTER_VECTORS")
	if dir == "" {
		t.Skip("ROSTER_VECTORS names no directory of JOSE vectors")
	}

	o := newOrigin(t, alpha)
	ring, bundles := reader(t, o)
	_, err := ring.Adopt(alpha, o.jws(t))
	must(t, err)
	foreign := func(file, jws string) {
		for _, typ := range []string{signed.TypePage, signed.TypeHead, signed.TypeRecord, signed.TypeKeys,
			signed.TypeAttestation, "JWT", ""} {
			if _, _, err := ring.Verify(alpha, typ, jws); err == nil {
				t.Errorf("%s: %s is taken as ours", file, jws)
			}
		}

		key := signed.SigningKey{Public: o.key.Public(), Node: o.svid.ID}
		if _, err := verifyAttestation(jws, key, alpha, bundles, time.Now()); err == nil {
			t.Errorf("%s: %s is taken as an attestation", file, jws)
		}
	}
	texts, judged, valid := 0, 0, 0
	must(t, filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".json") {
			return err
		}

		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), "eyJ") { // {" in base64url: no JOSE header otherwise
			return err
		}

		for _, jws := range joseText.FindAllString(string(text), -1) {
			texts++
			foreign(file, jws)
		}

		var vectors vectorFile
		if json.Unmarshal(text, &vectors) != nil {
			return nil // of another kind
		}

		for _, group := range vectors.TestGroups {
			var key jose.JSONWebKey
			if group.Type != "JsonWebSignature" || json.Unmarshal(group.Public, &key) != nil {
				continue // a symmetric key has no public half, and no place here
			}

			var limits struct {
				Operations []string `json:"key_ops"`
			}
			must(t, json.Unmarshal(group.Public, &limits))

			if key.Use == "enc" || slices.Contains(limits.Operations, "encrypt") {
				continue // our keys come from certificates, whose key usage says it; see TestTLSRefusesWithReason
			}

			for _, test := range group.Tests {
				var jws string
				if json.Unmarshal(test.JWS, &jws) != nil {
					jws = string(test.JWS) // in JSON serialization
				}

				judged++

				switch taken := takes(jws, key); {
				case taken && test.Result != "valid":
					t.Errorf("%s: vector %d is %s and taken", file, test.ID, test.Result)
				case taken:
					valid++
				}
			}
		}

		return nil
	}))
	t.Logf("%d texts, %d vectors judged under their keys, %d of them taken", texts, judged, valid)

	if texts == 0 || judged > 0 && valid == 0 {
		t.Errorf("%s holds nothing that was tried", dir)
	}
}

// takes is the path of an attestation's signature, for any header of alg and kid.
func takes(jws string, key jose.JSONWebKey) bool {
	c, err := compact.Split(jws, compact.MaxSize, "alg", "kid")
	if err != nil {
		return false
	}

	if alg, err := c.Text("alg"); err != nil || key.Algorithm != "" && alg != key.Algorithm {
		return false // a JWK's own alg, which a certificate doesn't have
	}

	return key.Valid() && verifyLeaf(jws, c, key.Key) == nil
}
