package doctor

import (
	"bufio"
	"cmp"
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
func (d *diagnosis) disk(context.Context) {
	free, share, err := spaceOf(d.cfg.Data)

	do := "make room, or move data to a larger disk"
	switch {
	case err != nil:
		d.say("disk", StatusUnknown, "see that "+d.cfg.Data+" is there", "%v", err)
		return
	case free < spaceLeast:
		d.say("disk", StatusFailed, do, "%d MiB are free at %s", free>>20, d.cfg.Data)
	case share < spaceSoon:
		d.say("disk", StatusWarning, do, "%d %% are free at %s: %d MiB", share, d.cfg.Data, free>>20)
	default:
		d.say("disk", StatusOK, "", "%d %% are free at %s: %d MiB", share, d.cfg.Data, free>>20)
	}

	took, err := syncTime(d.cfg.Data)

	do = "a change waits for that: give data a disk of its own, or a faster one"
	switch {
	case err != nil:
		d.say("disk.sync", StatusFailed, "see who owns "+d.cfg.Data+" and whether it can be written", "%v", err)
	case d.cfg.Disk.Slow > 0 && took > d.cfg.Disk.Slow:
		d.say("disk.sync", StatusFailed, do, "to put 4 KiB on disk takes %v; over disk.slow a leader hands over", took)
	case took > 50*time.Millisecond:
		d.say("disk.sync", StatusWarning, do, "to put 4 KiB on disk takes %v", took)
	default:
		d.say("disk.sync", StatusOK, "", "to put 4 KiB on disk takes %v", took)
	}
}

// syncTime is the median time that a disk takes for 4 KiB.
func syncTime(dir string) (_ time.Duration, err error) {
	file, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return 0, err
	}

	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()

	times := make([]time.Duration, syncTrials)
	for i := range times {
		began := time.Now()

		if _, err := file.Write(make([]byte, 4<<10)); err != nil {
			return 0, err
		}

		if err := file.Sync(); err != nil {
			return 0, err
		}

		times[i] = time.Since(began)
	}

	slices.Sort(times)

	return times[len(times)/2].Round(10 * time.Microsecond), nil
}

// trail reads the end of the audit trail: that each line is one, and that each
// intended change has an outcome.
func (d *diagnosis) trail(context.Context) {
	const check = "audit"
	path := filepath.Join(d.cfg.Data, "audit.jsonl")

	end, err := readTrail(path, d.now)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.say(check, StatusUnknown, "start the node: it begins one", "there is no trail yet at %s", path)
	case err != nil:
		d.say(check, StatusFailed, "see who owns "+path+": without it no change is made",
			"the trail can't be read: %v", err)
	case end.bad > 0:
		d.say(check, StatusFailed, "keep "+path+" as it is and find out who wrote to it",
			"%d of the last %d lines are none of a trail", end.bad, end.lines)
	case len(end.open) > 0:
		last := end.open[len(end.open)-1]
		d.say(check, StatusWarning,
			"the node ended on the way: look at what became of it (\"roster get\"), and note it",
			"%d changes were intended and have no outcome; the last is %s %s%s of %s, at %s, request %s",
			len(end.open), last.Action, last.Agent, last.Target, last.Actor, last.Time.Format(time.RFC3339),
			last.RequestID)
	default:
		d.say(check, StatusOK, "", "the last %d lines are whole, and each intended change has an outcome", end.lines)
	}

	d.outlived(end.outlive)
}

// outlived warns of registrations that live for much longer than what their registrants
// showed (jimenez 8.2): whoever's credentials are taken back stays found for that long.
func (d *diagnosis) outlived(lines []trailLine) {
	const check = "lifetimes"
	if len(lines) == 0 {
		d.say(check, StatusOK, "", "none that this node granted lately is over %d times the life of the "+
			"credential that it was asked for with", credentialLives)

		return
	}

	worst := slices.MaxFunc(lines, func(a, b trailLine) int { return cmp.Compare(a.lives(), b.lives()) })
	d.say(check, StatusWarning, "set lifetimes.credentials, or lower lifetimes.max; \"roster revoke IDENTITY "+
		"--end\" ends what one owns",
		"%d registrations that this node granted lately live for over %d times as long as the credential that "+
			"they were asked for with; %s of %s for %d s, by one of %d s",
		len(lines), credentialLives, worst.Agent, worst.Actor, worst.Lifetime, worst.Credential)
}

// credentialLives is how many lifetimes of its registrant's credential a registration has
// without a warning.
const credentialLives = 10

// A trailLine is what is looked at of a line of the trail.
type trailLine struct {
	Time      time.Time `json:"time"`
	Phase     string    `json:"phase"`
	RequestID string    `json:"request_id"`
	Action    string    `json:"action"`
	Actor     string    `json:"actor"`
	Agent     string    `json:"agent"`
	Target    string    `json:"target"`
	RID       string    `json:"rid"`
	Outcome   string    `json:"outcome"`

	Lifetime   int64 `json:"lt"`
	Credential int64 `json:"credential_s"`
}

func (l *trailLine) lives() int64 { return l.Lifetime / max(1, l.Credential) }

// A trailEnd is what the end of a trail tells.
type trailEnd struct {
	lines, bad int         // that are none
	open       []trailLine // intents that have no outcome though it is late for one
	outlive    []trailLine // the last word of each registration that outlives its credential so far
}

// readTrail reads the end of a trail.
func readTrail(path string, now time.Time) (end trailEnd, err error) {
	file, err := os.Open(path)
	if err != nil {
		return end, err
	}
	defer file.Close()

	info, err := file.Stat()
	if err != nil {
		return end, err
	}

	cut := info.Size() > trailTail
	if cut {
		if _, err := file.Seek(-trailTail, io.SeekEnd); err != nil {
			return end, err
		}
	}

	in := bufio.NewScanner(file)
	in.Buffer(nil, maxTrail)

	intents, granted := map[string][]trailLine{}, map[string]trailLine{}
	for in.Scan() {
		if cut { // the first is not whole
			cut = false
			continue
		}

		var line trailLine
		if end.lines++; json.Unmarshal(in.Bytes(), &line) != nil || line.Phase == "" {
			end.bad++
			continue
		}

		key := line.RequestID + " " + line.Action
		switch waiting := intents[key]; {
		case line.Phase == "intent":
			intents[key] = append(waiting, line)
		case line.Phase == "outcome" && len(waiting) > 0:
			intents[key] = waiting[1:]
		}

		if line.Phase == "outcome" && line.Outcome == "ok" && line.RID != "" {
			granted[line.RID] = line
		}
	}

	for _, waiting := range intents {
		for _, l := range waiting {
			if now.Sub(l.Time) > outcomeLate {
				end.open = append(end.open, l)
			}
		}
	}

	for _, l := range granted {
		if l.Credential > 0 && l.Lifetime > credentialLives*l.Credential {
			end.outlive = append(end.outlive, l)
		}
	}

	slices.SortFunc(end.open, func(a, b trailLine) int { return a.Time.Compare(b.Time) })

	if err := in.Err(); err != nil {
		return end, fmt.Errorf("%s: %w", path, err)
	}

	return end, nil
}
