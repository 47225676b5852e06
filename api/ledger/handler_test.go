package ledger

import "testing"

// Requirement: LOG-001
func TestEveryTileHasOnePath(t *testing.T) {
	for path, want := range map[string]struct {
		level int
		n     uint64
		width int
	}{
		"0/000":                     {0, 0, 256},
		"7/000.p/1":                 {7, 0, 1},
		"entries/255.p/255":         {entries, 255, 255},
		"0/x001/x234/067":           {0, 1234067, 256},
		"entries/x001/x234/067.p/7": {entries, 1234067, 7},
	} {
		level, n, width, ok := parseTile(path)
		if !ok || level != want.level || n != want.n || width != want.width {
			t.Errorf("%s: level %d, tile %d, width %d (%t), want %+v", path, level, n, width, ok, want)
		}
	}

	for _, path := range []string{
		"", "0", "0/", "8/000", "00/000", "-1/000", "0/0", "0/0000", "0/1000", "0/x000/000", "0/x1/000", "0/001/000",
		"0/x001/x000", "0/000.p", "0/000.p/", "0/000.p/0", "0/000.p/256", "0/000.p/01", "0/000.p/1/", "0/000/",
		"Entries/000",
		"0/x999/x999/x999/x999/x999/x999/999", "0/000.p/999", "0/../000",
	} {
		if level, n, width, ok := parseTile(path); ok {
			t.Errorf("%q is level %d, tile %d, width %d, and is no tile's path", path, level, n, width)
		}
	}
}
