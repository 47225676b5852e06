package cli

import (
	"fmt"
	"strings"
	"testing"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// An expired SVID of a node is its operator's to renew: the caller's bundle is right.
func TestABundleIsNotBlamedForAnExpiredServer(t *testing.T) {
	for cause, blamed := range map[error]bool{
		apiclient.ErrNotInForce:                          false,
		fmt.Errorf("x: %w", apiclient.ErrNotInForce):     false,
		fmt.Errorf("the bundle doesn't certify %s", "x"): true,
	} {
		failure := FailureOf(fmt.Errorf("request: %w", &apiclient.ServerError{Err: cause}))
		if failure.Code != ExitKey || strings.Contains(failure.Hint, "--bundle") != blamed {
			t.Errorf("%v: exit code %d, %s", cause, failure.Code, failure.Hint)
		}
	}
}
