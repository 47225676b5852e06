package operator

import (
	"crypto/rand"
	"crypto/sha256"
	"reflect"
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
		Domain: "alpha.example", Addresses: []string{"https://ad.alpha.example:8400"},
		BundleHash: sha256.Sum256([]byte("bundle")), Secret: rand.Text(), Until: time.Now().Add(time.Hour).Unix(),
	}

	word := token.String()
	if len(word) > 150 || strings.ContainsAny(word, " \t\n'\"$\\") {
		t.Errorf("%d characters: %s", len(word), word)
	}

	if got, err := ParseToken(word); err != nil || !reflect.DeepEqual(got, token) {
		t.Errorf("got %+v, %v, want %+v", got, err, token)
	}

	for _, bad := range []string{
		"", word + "x", word[:len(word)-1], word[1:], strings.Replace(word, "~", "", 1), word + "~", word + "~x",
		strings.Replace(word, "roster-peer-1", "roster-peer-2", 1), strings.Repeat("x", MaxToken+1),
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

	token.Addresses = append(token.Addresses, "https://user:secret@ad.alpha.example")
	if _, err := token.CheckDomain(beta); err == nil {
		t.Error("an address with a password is taken")
	}

	if _, err := token.CheckDomain(alpha); err == nil {
		t.Error("the domain accepts its own token")
	}
}

// An invitation has the addresses of several nodes, so that it can be accepted while one is down. A
// word with more than a token has is refused.
//
// Requirement: MESH-024
func TestATokenHasSeveralAddresses(t *testing.T) {
	token := Token{
		Domain: "alpha.example", Secret: rand.Text(), Until: time.Now().Add(time.Hour).Unix(),
		Addresses: []string{
			"https://a.alpha.example:8400", "https://[2001:db8::2]:8400", "https://192.0.2.3:8400",
		},
	}

	if got, err := ParseToken(token.String()); err != nil || !reflect.DeepEqual(got, token) {
		t.Errorf("got %+v, %v, want %+v", got, err, token)
	}

	token.Addresses = append(token.Addresses, "https://d.alpha.example:8400")
	if got, err := ParseToken(token.String()); err == nil {
		t.Errorf("a token with four addresses is taken as %+v", got)
	}
}
