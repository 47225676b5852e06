package trust

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	pollEvery = 30 * time.Second       // what a missed event costs at most
	settle    = 200 * time.Millisecond // a writer replaces certificate and key one after the other
)

// Run watches the files of s and swaps to a new SVID when they hold one, until
// ctx ends. What can't be used is logged and the old SVID kept. For a fixed
// source Run returns at once.
func (s *Source) Run(ctx context.Context, log *slog.Logger) {
	if s.certFile == "" {
		return
	}
	events, stop := s.watch(log)
	defer stop()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	quiet := time.NewTimer(settle)
	defer quiet.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-events:
			if !ok {
				events = nil
			}
			quiet.Reset(settle)
		case <-poll.C:
			s.swap(log)
		case <-quiet.C:
			s.swap(log)
		}
	}
}

func (s *Source) swap(log *slog.Logger) {
	switch err := s.reload(); {
	case err == nil:
		svid := s.SVID()
		log.Info("new SVID", "id", svid.ID.String(), "expires", svid.Certificates[0].NotAfter)
	case !errors.Is(err, errNothingNew):
		log.Error("the node's SVID files can't be used; the old SVID stays", "err", err,
			"expires", s.SVID().Certificates[0].NotAfter)
	}
}

// watch reports changes in the directories of the files: a writer that renames
// a new file into place, or a mounted secret, replaces what a watch on the file
// itself would hold on to. Without inotify the poll alone is left.
func (s *Source) watch(log *slog.Logger) (<-chan fsnotify.Event, func()) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("the SVID files are polled only", "err", err, "every", pollEvery)
		return nil, func() {}
	}
	for _, file := range []string{s.certFile, s.keyFile} {
		if err := w.Add(filepath.Dir(file)); err != nil {
			log.Warn("the SVID files are polled only", "err", err, "every", pollEvery)
		}
	}
	return w.Events, func() { _ = w.Close() }
}
