package scenarios

import (
	"os"
	"runtime/debug"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/roster-mesh/roster/scenarios/mesh"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(300) // the stories keep little of what they make: a fifth of their time
	goleak.VerifyTestMain(m)
}

// wan is how the networks of the stories behave when nothing is wrong.
var wan = mesh.Link{Delay: 10 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.001}

// tell tells a story in a bubble of its own for each seed: one under -short, n
// otherwise, STORY_SEEDS of them where that is set.
func tell(t *testing.T, n int, story func(t *testing.T, seed uint64)) {
	n = full(n, 1)
	if s, err := strconv.Atoi(os.Getenv("STORY_SEEDS")); err == nil {
		n = s
	}

	t.Parallel()

	for seed := range uint64(n) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { story(t, seed) })
		})
	}
}

// long returns n where STORY_LONG asks for the sizes that the promises name, and
// otherwise less.
func long(n, usual int) int {
	if os.Getenv("STORY_LONG") == "" {
		return usual
	}

	return n
}

// full returns n, or less where -short asks for the short set.
func full(n, short int) int {
	if testing.Short() {
		return short
	}

	return n
}

// sleepUntil lets the mesh run, judged all the way, until a time.
func sleepUntil(m *mesh.Mesh, at time.Time) {
	m.T.Helper()
	m.Sleep(time.Until(at))
}
