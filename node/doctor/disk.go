package doctor

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/roster-mesh/roster/node/disk"
	"github.com/roster-mesh/roster/trust/audit"
)

const syncTrials = 16

// disk checks the free space and the speed of the disk that has the data.
func (d *diagnosis) disk(context.Context) {
	data := d.cfg.Data
	if d.isNew {
		// The first start makes the folder, on the disk of the nearest one.
		data = nearestFolder(data)
	}

	free, share, err := disk.FreeSpace(data)

	if err != nil {
		d.say("disk", StatusUnknown, "check that "+d.cfg.Data+" exists and is mounted", "%v", err)
		return
	}

	do := "free disk space, or move data to a larger disk"
	d.say("disk", JudgeSpace(free, share), do, "%d %% are free at %s: %d MiB", share, d.cfg.Data, free>>20)

	took, err := syncTime(data)

	do = "writes wait for it: move data to a faster disk, or one of its own"
	switch {
	case err != nil:
		d.say("disk.sync", StatusFailed, "check the owner and permissions of "+d.cfg.Data, "%v", err)
	case d.cfg.Disk.Slow > 0 && took > d.cfg.Disk.Slow:
		d.say("disk.sync", StatusFailed, do, "a 4 KiB sync takes %v; over disk.slow a leader hands over", took)
	case took > 50*time.Millisecond:
		d.say("disk.sync", StatusWarning, do, "a 4 KiB sync takes %v", took)
	default:
		d.say("disk.sync", StatusOK, "", "a 4 KiB sync takes %v", took)
	}
}

// nearestFolder returns a folder, or the nearest one around it that there is.
func nearestFolder(dir string) string {
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() || filepath.Dir(dir) == dir {
			return dir
		}

		dir = filepath.Dir(dir)
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

	// A single slow sync doesn't move the median.
	slices.Sort(times)

	return times[len(times)/2].Round(10 * time.Microsecond), nil
}

// trail reads the end of the audit trail: that each line is one, and that each
// intended change has an outcome.
func (d *diagnosis) trail(context.Context) {
	const check = "audit"

	if d.isNew {
		return
	}

	path := filepath.Join(d.cfg.Data, "audit.jsonl")

	tail, err := audit.ReadTail(path, d.now)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.say(check, StatusUnknown, "start the node, which creates it", "no audit log at %s", path)
	case err != nil:
		d.say(check, StatusFailed, "check the owner and permissions of "+path+": the node refuses changes without it",
			"can't read the audit log: %v", err)
	case len(tail.Faults) > 0:
		d.say(check, StatusFailed, "keep "+path+" as it is and find out who wrote to it; \"roster audit --file "+path+
			"\" names each place",
			"faults in the last %d lines: %d; first: %s", tail.Lines, len(tail.Faults),
			tail.Faults[0])
	case len(tail.Open) > 0:
		last := tail.Open[len(tail.Open)-1]
		d.say(check, StatusWarning,
			"the node stopped before it recorded the outcome: check the result with \"roster get\"",
			"%d changes have no recorded outcome; last: %s %s of %s, at %s, request %s",
			len(tail.Open), last.Action, d.nameOf(last.Agent+last.Target), d.nameOf(last.Actor),
			last.Time.Format(time.RFC3339), last.RequestID)
	default:
		d.say(check, StatusOK, "", "the last %d lines are intact, and each change has an outcome", tail.Lines)
	}

	d.suspects(tail.Suspect)
	d.misconduct(tail.Misconduct)
	d.outlived(tail.Granted)
}

// nameOf returns the name of the actor or subject of a change, unless names are left out.
func (d *diagnosis) nameOf(name string) string {
	if d.hidesNames && name != "" {
		return "(name left out)"
	}

	return name
}

// suspects reports operators' commands that were applied without a valid proof, or that the node
// could not check.
func (d *diagnosis) suspects(lines []audit.Entry) {
	const check = "operators"

	if len(lines) == 0 {
		d.say(check, StatusOK, "", "no recent command without a valid proof or check")

		return
	}

	last := lines[len(lines)-1]
	d.say(check, StatusFailed,
		"a member's key may be stolen: compare \"roster audit\" of all nodes, remove the member that brought the "+
			"command, and undo it; if it is a peer's bundle, compare its fingerprints",
		"%d recent commands without a valid proof or check; last: %s %s at %s, brought by %s",
		len(lines), last.Action, d.nameOf(last.Target), last.Time.Format(time.RFC3339),
		cmp.Or(last.BroughtBy, "nodes unknown"))
}

// misconduct reports messages of members that the node has refused.
func (d *diagnosis) misconduct(lines []audit.Entry) {
	const check = "members"

	if len(lines) == 0 {
		d.say(check, StatusOK, "", "no false message from a member lately")

		return
	}

	last := lines[len(lines)-1]
	d.say(check, StatusFailed,
		"the key of that member may be stolen: remove it with \"roster raft remove ID\", and renew its key "+
			"(docs/runbooks.md#rostermembermisconduct); if it runs a newer release, upgrade this node",
		"%d false messages from members were refused lately; last: from %s at %s: %s",
		len(lines), last.BroughtBy, last.Time.Format(time.RFC3339), last.Target)
}

// outlived warns of registrations that live for much longer than their registrants'
// credentials (jimenez 8.2): after a credential is revoked, its registrations are still
// found for that long.
func (d *diagnosis) outlived(granted map[string]audit.Entry) {
	const check = "lifetimes"

	var lines []audit.Entry
	for _, entry := range granted {
		if entry.Credential > 0 && entry.Lifetime > credentialLives*entry.Credential {
			lines = append(lines, entry)
		}
	}

	if len(lines) == 0 {
		d.say(check, StatusOK, "", "no lifetime granted lately exceeds %d times the life of its credential",
			credentialLives)

		return
	}

	worst := slices.MaxFunc(lines, func(a, b audit.Entry) int {
		return cmp.Compare(a.Lifetime/max(1, a.Credential), b.Lifetime/max(1, b.Credential))
	})
	d.say(check, StatusWarning, "set lifetimes.credentials, or lower lifetimes.max; \"roster revoke IDENTITY "+
		"--end\" ends what one owns",
		"%d registrations that this node granted lately live for over %d times as long as the credential that "+
			"they were asked for with; %s of %s for %d s, by one of %d s",
		len(lines), credentialLives, d.nameOf(worst.Agent), d.nameOf(worst.Actor), worst.Lifetime,
		worst.Credential)
}

// credentialLives is how many lifetimes of its registrant's credential a registration has
// without a warning.
const credentialLives = 10
