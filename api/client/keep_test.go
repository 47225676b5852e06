package client_test

import (
	"fmt"
	"testing"

	"github.com/roster-mesh/roster/api/client"
)

// A kind of event is printed as a word.
func TestKeepKindsAreWords(t *testing.T) {
	for kind, want := range map[client.KeepKind]string{
		client.KeepRegistered: "registered", client.KeepFailing: "failing", client.KeepRecovered: "recovered",
		client.KeepRestored: "restored",
		9:                   "unknown kind 9",
	} {
		if got := fmt.Sprint(kind); got != want {
			t.Errorf("%d is %q, want %q", int(kind), got, want)
		}
	}
}
