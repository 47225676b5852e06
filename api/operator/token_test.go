package operator

import (
	"crypto/rand"
	"crypto/sha256"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A token is a word of about 150 characters, and is refused if a character is missing or
// added: an operator copies it.
//
// Requirement: MESH-024
func TestATokenIsOneShortWord(t *testing.T) {
	token := Token{
		Domain: "alpha.example", Address: "https://ad.alpha.example:8400", BundleHash: sha256.Sum256([]byte("bundle")),
		Secret: rand.Text(), Until: time.Now().Add(time.Hour).Unix(),
	}

	word := token.String()
	if len(word) > 150 || strings.ContainsAny(word, " \t\n'\"$\\") {
		t.Errorf("%d characters: %s", len(word), word)
	}

	if got, err := ParseToken(word); err != nil || got != token || !got.NeedsBundle() {
		t.Errorf("got %+v, %v, want %+v", got, err, token)
	}

	for _, bad := range []string{
		"", word + "x", word[:len(word)-1], word[1:], strings.Replace(word, "~", "", 1), word + "~", word + "~x",
		strings.Replace(word, "roster-peer-2", "roster-peer-3", 1), strings.Repeat("x", MaxToken+1),
	} {
		if got, err := ParseToken(bad); err == nil {
			t.Errorf("%.200q is taken as %+v", bad, got)
		}
	}

	alpha := spiffeid.RequireTrustDomainFromString("alpha.example")
	beta := spiffeid.RequireTrustDomainFromString("beta.test")

	if _, err := token.CheckDomain(beta); err != nil {
		t.Error(err)
	}

	token.Address = "https://user:secret@ad.alpha.example"
	if _, err := token.CheckDomain(beta); err == nil {
		t.Error("an address with a password is taken")
	}

	if _, err := token.CheckDomain(alpha); err == nil {
		t.Error("the domain accepts its own token")
	}
}
