package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Bounds of what a disk must give.
const (
	spaceLeast  = 1 << 30 // bytes
	spaceSoon   = 10      // percent
	syncTrials  = 16
	outcomeLate = time.Minute // after an intent
	trailTail   = 16 << 20    // bytes of the trail that are read
	maxTrail    = 1 << 20     // bytes of one line
)

// disk looks at the room and the speed of the disk that has the data.
func (d *Doctor) disk(context.Context) {
	free, share, err := spaceOf(d.cfg.Data)
	do := "make room, or move data to a larger disk"
	switch {
	case err != nil:
		d.say("disk", FindingUnknown, "see that "+d.cfg.Data+" is there", "%v", err)
		return
	case free < spaceLeast:
		d.say("disk", FindingFailed, do, "%d MiB are free at %s", free>>20, d.cfg.Data)
	case share < spaceSoon:
		d.say("disk", FindingWarning, do, "%d %% are free at %s: %d MiB", share, d.cfg.Data, free>>20)
	default:
		d.say("disk", FindingOK, "", "%d %% are free at %s: %d MiB", share, d.cfg.Data, free>>20)
	}
	took, err := syncTime(d.cfg.Data)
	do = "a change waits for that: give data a disk of its own, or a faster one"
	switch {
	case err != nil:
		d.say("disk.sync", FindingFailed, "see who owns "+d.cfg.Data+" and whether it can be written", "%v", err)
	case d.cfg.Disk.Slow > 0 && took > d.cfg.Disk.Slow:
		d.say("disk.sync", FindingFailed, do, "to put 4 KiB on disk takes %v; over disk.slow a leader hands over", took)
	case took > 50*time.Millisecond:
		d.say("disk.sync", FindingWarning, do, "to put 4 KiB on disk takes %v", took)
	default:
		d.say("disk.sync", FindingOK, "", "to put 4 KiB on disk takes %v", took)
	}
}

// syncTime is the median time that a disk takes for 4 KiB.
func syncTime(dir string) (_ time.Duration, err error) {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	times := make([]time.Duration, syncTrials)
	for i := range times {
		began := time.Now()
		if _, err := f.Write(make([]byte, 4<<10)); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	return times[len(times)/2].Round(10 * time.Microsecond), nil
}

// trail reads the end of the audit trail: that each line is one, and that each
// intended change has an outcome.
func (d *Doctor) trail(context.Context) {
	const check = "audit"
	path := filepath.Join(d.cfg.Data, "audit.jsonl")
	lines, bad, open, err := readTrail(path, d.now)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.say(check, FindingUnknown, "start the node: it begins one", "there is no trail yet at %s", path)
	case err != nil:
		d.say(check, FindingFailed, "see who owns "+path+": without it no change is made", "the trail can't be read: %v", err)
	case bad > 0:
		d.say(check, FindingFailed, "keep "+path+" as it is and find out who wrote to it", "%d of the last %d lines are none of a trail", bad, lines)
	case len(open) > 0:
		last := open[len(open)-1]
		d.say(check, FindingWarning, "the node ended on the way: look at what became of it (\"roster get\"), and note it",
			"%d changes were intended and have no outcome; the last is %s %s%s of %s, at %s, request %s",
			len(open), last.Action, last.Agent, last.Target, last.Actor, last.Time.Format(time.RFC3339), last.RequestID)
	default:
		d.say(check, FindingOK, "", "the last %d lines are whole, and each intended change has an outcome", lines)
	}
}

// A trailLine is what is looked at of a line of the trail.
type trailLine struct {
	Time      time.Time `json:"time"`
	Phase     string    `json:"phase"`
	RequestID string    `json:"request_id"`
	Action    string    `json:"action"`
	Actor     string    `json:"actor"`
	Agent     string    `json:"agent"`
	Target    string    `json:"target"`
}

// readTrail returns how many lines the end of a trail has, how many of them are none,
// and the intents that have no outcome though it is late for one.
func readTrail(path string, now time.Time) (lines, bad int, open []trailLine, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, 0, nil, err
	}
	cut := info.Size() > trailTail
	if cut {
		if _, err := f.Seek(-trailTail, io.SeekEnd); err != nil {
			return 0, 0, nil, err
		}
	}
	in := bufio.NewScanner(f)
	in.Buffer(nil, maxTrail)
	intents := map[string][]trailLine{}
	for in.Scan() {
		if cut { // the first is not whole
			cut = false
			continue
		}
		var l trailLine
		if lines++; json.Unmarshal(in.Bytes(), &l) != nil || l.Phase == "" {
			bad++
			continue
		}
		key := l.RequestID + " " + l.Action
		switch waiting := intents[key]; {
		case l.Phase == "intent":
			intents[key] = append(waiting, l)
		case l.Phase == "outcome" && len(waiting) > 0:
			intents[key] = waiting[1:]
		}
	}
	for _, waiting := range intents {
		for _, l := range waiting {
			if now.Sub(l.Time) > outcomeLate {
				open = append(open, l)
			}
		}
	}
	slices.SortFunc(open, func(a, b trailLine) int { return a.Time.Compare(b.Time) })
	if err := in.Err(); err != nil {
		return lines, bad, open, fmt.Errorf("%s: %w", path, err)
	}
	return lines, bad, open, nil
}
