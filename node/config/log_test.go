package config_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/roster-mesh/roster/node/config"
)

// Requirement: FLD-008
func TestNoLogLineShowsAPassword(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer

		log := config.Log{Level: "info", Format: format}.Logger(&out, slog.LevelInfo)
		log.Warn("fetch of https://u:secret@a.test failed", "url", "https://u:secret@a.test/x",
			"err", errors.New(`Get "https://u:secret@a.test": refused`), "count", 3)

		if line := out.String(); strings.Contains(line, "secret") || strings.Count(line, "//…@a.test") != 3 {
			t.Errorf("%s: %s", format, line)
		}
	}
}
