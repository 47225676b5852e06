package api

import (
	"bytes"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/api/request"
)

// Each refused read is logged or counted. One that was not logged, because others filled the
// second, is logged later: it is no repetition.
// notes/users.md: "403 and 404 of ordinary polling at INFO for ever".
//
// Requirement: OPS-043
func TestRefusedReadsAreLoggedOrCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer

		l := newRefusalLog(slog.New(slog.NewTextHandler(&lines, nil)))
		take := func(path string) (int, bool) {
			return l.take(&request.Call{
				Request: &http.Request{Method: http.MethodGet}, Route: "/ad/l", Identity: identity(path),
			}, http.StatusForbidden)
		}
		takes := func(path string, before int, logged bool) {
			t.Helper()

			if gotBefore, got := take(path); got != logged || gotBefore != before {
				t.Errorf("%s: logged %t with %d before, want %t with %d", path, got, gotBefore, logged, before)
			}
		}

		takes("/agent/eve", 0, true)
		takes("/agent/eve", 0, false) // a repetition
		takes("/agent/mallory", 0, true)
		takes("/agent/ada", 0, false) // the second is full: counted
		time.Sleep(time.Second)
		takes("/agent/ada", 0, true)

		time.Sleep(repeatedFor)
		takes("/agent/x", 0, true)
		takes("/agent/y", 0, true)
		takes("/agent/eve", 0, false) // the second is full: counted, and the repetition is kept
		time.Sleep(time.Second)
		takes("/agent/eve", 1, true)

		time.Sleep(refusalsEvery)
		synctest.Wait()

		if got := strings.Count(lines.String(), "count=1"); got != 2 {
			t.Errorf("two refusals are counted, in lines of their own, not %d:\n%s", got, &lines)
		}

		// Repetitions of reads that are no longer remembered are counted too.
		takes("/agent/eve", 0, false)
		synctest.Wait()
		lines.Reset()

		for i := range repeatsMost {
			take("/agent/" + strconv.Itoa(i))
			time.Sleep(time.Second / refusalsEach)
		}

		time.Sleep(refusalsEvery)
		synctest.Wait()

		if !strings.Contains(lines.String(), "count=1") {
			t.Errorf("the repetition is not counted:\n%s", &lines)
		}
	})
}
