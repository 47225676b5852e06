package scenarios

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/scenarios/launch"
	"github.com/roster-mesh/roster/scenarios/mesh"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(300) // stories make much garbage: saves a fifth of their time

	remove, err := launch.Isolate()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		remove()
		os.Exit(code)
	}))
}

// wan is the network of the stories without faults.
var wan = mesh.Link{Delay: 10 * time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.001}

// story skips a test that takes minutes with its like, unless stories run in full.
func story(t *testing.T) {
	t.Helper()

	if !directorytest.Full() {
		t.Skip("a long story; make stories runs it")
	}
}

// runStory runs a story in a bubble of its own for each seed: n in full, else one, or
// STORY_SEEDS of them.
func runStory(t *testing.T, n int, story func(t *testing.T, seed uint64)) {
	n = directorytest.Sample(n, 1)
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

// long returns n if STORY_LONG asks for the sizes that the requirements name, else the
// usual size.
func long(n, usual int) int {
	if os.Getenv("STORY_LONG") == "" {
		return usual
	}

	return n
}

// sleepUntil lets the mesh run until a time, with all views judged meanwhile.
func sleepUntil(m *mesh.Mesh, at time.Time) {
	m.T.Helper()
	m.Sleep(time.Until(at))
}

var must = directorytest.Must
