package api

import (
	"testing"
	"time"

	"github.com/roster-mesh/roster/directory"
)

// What is granted is bound by the lifetime of the credential, and what was granted
// before is not kept over it.
//
// Requirement: AD-070
func TestACredentialBoundsLifetimes(t *testing.T) {
	held := &directory.Entry{Lifetime: 86400}
	for _, x := range []struct {
		lives           uint32
		life            time.Duration
		asked, want     uint32
		kept, wantsKept uint32
	}{
		{0, time.Hour, 604800, 604800, 0, 0},
		{10, time.Hour, 604800, 36000, 0, 36000},
		{10, time.Hour, 3600, 3600, 0, 36000},
		{10, 0, 604800, 604800, 0, 0}, // nothing is known of it
		{24, time.Hour, 604800, 86400, 0, 0},
		{1, time.Second, 604800, directory.MinLifetime, 0, directory.MinLifetime},
		{1 << 31, 1000 * time.Hour, 604800, 604800, 0, 0},
	} {
		s := newTestServer(t, func(c *Config) { c.CredentialLives = x.lives })
		c := &call{credential: Credential{Life: x.life}}
		if got := s.capped(c, x.asked); got != x.want {
			t.Errorf("%d lives of %s, asked for %d: %d, want %d", x.lives, x.life, x.asked, got, x.want)
		}
		if got := s.cappedOf(c, x.kept, held); got != x.wantsKept {
			t.Errorf("%d lives of %s, and %d are kept: %d, want %d", x.lives, x.life, held.Lifetime, got, x.wantsKept)
		}
	}
}
