package trust

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	pollEvery = 30 * time.Second       // the longest delay after a missed event
	settle    = 200 * time.Millisecond // a writer replaces certificate and key one after the other
	unsettled = 2 * time.Second        // for how long others that write beside them put that off
)

// Run watches the files of s and swaps to their contents, until ctx ends: the SVID, and
// its domain's bundle if Follow named its file. If a file can't be used, Run logs the
// error, Trouble returns it, and the former contents stay. For a fixed source without a
// bundle's file Run returns at once.
func (s *Source) Run(ctx context.Context, log *slog.Logger) {
	if s.certFile == "" && s.bundleFile == "" {
		return
	}

	events, stop := s.watch(log)
	defer stop()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	quiet := time.NewTimer(settle)
	defer quiet.Stop()

	var since time.Time // of events that nothing was done about; zero for none
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-events:
			if !ok {
				// A nil channel is never ready, so that only the poll is left.
				events = nil
			}

			// Other files beside these may change all the time: the first event bounds the delay that later ones cause.
			if since.IsZero() {
				since = time.Now()
			}

			quiet.Reset(min(settle, time.Until(since.Add(unsettled))))
		case <-poll.C:
			s.swap(log)
		case <-quiet.C:
			since = time.Time{}
			s.swap(log)
		}
	}
}

func (s *Source) swap(log *slog.Logger) {
	svid, bundle, err := s.reload()
	if svid {
		now := s.SVID()
		log.Info("new SVID", "id", now.ID.String(), "expires", now.Certificates[0].NotAfter)
	}

	if bundle {
		log.Info("the domain has a new bundle", "file", s.bundleFile)
	}

	if err != nil {
		log.Error("the node's identity files can't be used; what was last good stays", "err", err,
			"expires", s.SVID().Certificates[0].NotAfter)
	}
}

// watch reports changes in the directories of the files. A writer that renames a new
// file into place, or a mounted secret, replaces the file that a watch on the file
// itself would follow. Without inotify, and for a source that is not of files, only the
// poll is left.
func (s *Source) watch(log *slog.Logger) (<-chan fsnotify.Event, func()) {
	if s.certFile == "" {
		return nil, func() {}
	}

	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("identity files can't be watched; polling them", "err", err, "interval_s", pollEvery.Seconds())
		return nil, func() {}
	}

	for _, file := range []string{s.certFile, s.keyFile, s.bundleFile} {
		if file == "" {
			continue
		}

		// The poll covers a directory that can't be watched, so this is no reason to give up the others.
		if err := w.Add(filepath.Dir(file)); err != nil {
			log.Warn("identity files can't be watched; polling them", "err", err, "interval_s", pollEvery.Seconds())
		}
	}

	return w.Events, func() { _ = w.Close() }
}
