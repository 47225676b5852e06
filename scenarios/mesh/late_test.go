package mesh

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// Only an end that took too long in all of its parts is borne in slow stories.
func TestAnotherErrorIsNotHiddenBehindALateOne(t *testing.T) {
	slow := fmt.Errorf("stopping consensus: %w", context.DeadlineExceeded)

	both := errors.Join(nil, slow)
	if !late(slow) || !late(errors.Join(both, slow)) {
		t.Error("a late end is not tolerated")
	}

	if late(nil) || late(errors.Join(both, errors.New("stopping audit: the disk is full"))) {
		t.Error("another error is tolerated")
	}
}
