package metrics

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// An operator is told once that a quota is nearly used up, and once that it has room
// again; not at each step around the bound.
//
// Requirement: FORM-005
func TestAQuotaThatIsNearlyUsedUpIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer

	m := &quotaMonitor{log: slog.New(slog.NewTextHandler(&log, nil)), warned: map[string]bool{}}
	for _, used := range []uint64{0, 89, 90, 95, 100, 120, 88, 91, 86, 84, 50} {
		m.check(QuotaUse{"limits.bytes_per_domain", used, 100})
	}

	m.check(QuotaUse{"bytes of beta.test", 1 << 40, 0}) // which has no limit

	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "nearly used up") ||
		!strings.Contains(lines[0], "used=90 limit=100") ||
		!strings.Contains(lines[1], "room again") || !strings.Contains(lines[1], "used=84") {
		t.Errorf("the log is\n%s", &log)
	}
}
