package credentials

import (
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

var alpha = spiffeid.RequireTrustDomainFromString("alpha.test")

func must(t testing.TB, err error) {
	t.Helper()

	if err != nil {
		t.Fatal(err)
	}
}
