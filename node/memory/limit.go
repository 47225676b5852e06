package memory

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// A Bound is how much memory the process may have.
type Bound struct {
	Bytes  int64
	Source string // the file that says so, as in root
}

// Files of the kernel that name the process's cgroup, the mounts and the machine's
// memory (cgroups(7), proc_pid_mountinfo(5), proc_meminfo(5)).
const (
	membershipFile = "proc/self/cgroup"
	mountsFile     = "proc/self/mountinfo"
	machineFile    = "proc/meminfo"
)

// limitFiles names the limits of a cgroup, by the version of cgroups. memory.high is a
// limit as well: beyond it the kernel slows a process down almost to a halt.
var limitFiles = map[int][]string{
	1: {"memory.limit_in_bytes"},
	2: {"memory.max", "memory.high"},
}

// boundless is the number of bytes from which a limit is taken for no limit. Version 1 writes such a number for that.
const boundless = 1 << 60

// The collector gets a share of the memory. Beside the heap and the stacks that it
// counts, there are mapped files and, on a machine, other processes.
const (
	shareOfCgroup  = .9
	shareOfMachine = .75
)

// Find returns the bound of the collector: shareOfCgroup of the lowest limit of the
// process's cgroup and those above it, and at most shareOfMachine of the machine's
// memory. root is the machine's file system. It returns false if neither is known.
func Find(root fs.FS) (Bound, bool) {
	var found []Bound
	if b, ok := ofCgroup(root); ok {
		found = append(found, Bound{int64(shareOfCgroup * float64(b.Bytes)), b.Source})
	}

	if b, ok := ofMachine(root); ok {
		found = append(found, Bound{int64(shareOfMachine * float64(b.Bytes)), b.Source})
	}

	return lowest(found)
}

func lowest(all []Bound) (Bound, bool) {
	if len(all) == 0 {
		return Bound{}, false
	}

	least := all[0]
	for _, b := range all[1:] {
		if b.Bytes < least.Bytes {
			least = b
		}
	}

	return least, true
}

// ofCgroup returns the lowest limit of the process's cgroup and those above it.
func ofCgroup(root fs.FS) (Bound, bool) {
	membership, err := fs.ReadFile(root, membershipFile)
	if err != nil {
		return Bound{}, false
	}

	mounts, err := fs.ReadFile(root, mountsFile)
	if err != nil {
		return Bound{}, false
	}

	var found []Bound

	// Both versions of cgroups may be mounted at the same time, so each mount counts.
	for line := range strings.Lines(string(mounts)) {
		mount, ok := parseMount(line)
		if !ok {
			continue
		}

		group, ok := groupOf(string(membership), mount.version)
		if !ok {
			continue
		}

		found = append(found, mount.limits(root, group)...)
	}

	return lowest(found)
}

// A mount is a hierarchy of cgroups that the controller of memory is in, or may be.
type mount struct {
	version int
	root    string // the cgroup that is mounted
	point   string // where
}

// parseMount reads a line of mountinfo. It is false for all that is no such hierarchy.
func parseMount(line string) (mount, bool) {
	// The number of optional fields varies, so the dash alone shows where they end.
	before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")

	fields, source := strings.Fields(before), strings.Fields(after)
	if !ok || len(fields) < 5 || len(source) < 3 {
		return mount{}, false
	}

	m := mount{root: unescape(fields[3]), point: unescape(fields[4])}
	switch source[0] {
	case "cgroup2":
		m.version = 2
	case "cgroup":
		m.version = 1

		if !hasOption(source[2], "memory") {
			return mount{}, false
		}
	default:
		return mount{}, false
	}

	return m, true
}

func hasOption(options, name string) bool {
	for option := range strings.SplitSeq(options, ",") {
		if option == name {
			return true
		}
	}

	return false
}

// unescape reads the octal escapes of mountinfo, \040 for a space.
func unescape(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(n))
				i += 3

				continue
			}
		}

		out.WriteByte(s[i])
	}

	return out.String()
}

// groupOf returns the process's cgroup in the hierarchy of that version that has the
// controller of memory.
func groupOf(membership string, version int) (string, bool) {
	for line := range strings.Lines(membership) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}

		unified := parts[0] == "0" && parts[1] == ""
		if version == 2 && unified || version == 1 && hasOption(parts[1], "memory") {
			return parts[2], true
		}
	}

	return "", false
}

// limits returns the limits of a cgroup and of those above it, as far as they are
// mounted. In a container the path of a cgroup may be the host's, of which only the last
// part or none is mounted. The mounted cgroup is then the process's.
func (m mount) limits(root fs.FS, group string) []Bound {
	below, ok := strings.CutPrefix(path.Clean("/"+group), strings.TrimSuffix(m.root, "/"))

	// A process outside of the root of its cgroup namespace has a path with .., of which nothing is mounted.
	if !ok || strings.Contains(group, "..") {
		below = ""
	}

	top := strings.Trim(m.point, "/")

	dir := strings.Trim(path.Join(top, below), "/")
	if _, err := fs.Stat(root, dir); err != nil {
		dir = top
	}

	var found []Bound
	for {
		for _, name := range limitFiles[m.version] {
			file := path.Join(dir, name)
			if n, ok := readLimit(root, file); ok {
				found = append(found, Bound{n, "/" + file})
			}
		}

		if dir == top || dir == "." {
			return found
		}

		dir = path.Dir(dir)
	}
}

// readLimit reads a number of bytes. "max" means no limit; version 1 uses a very large
// number.
func readLimit(root fs.FS, file string) (int64, bool) {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return 0, false
	}

	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)

	return n, err == nil && n > 0 && n < boundless
}

// ofMachine returns the machine's memory.
func ofMachine(root fs.FS) (Bound, bool) {
	text, err := fs.ReadFile(root, machineFile)
	if err != nil {
		return Bound{}, false
	}

	kib, err := memTotal(string(text))
	if err != nil {
		return Bound{}, false
	}

	return Bound{kib << 10, "/" + machineFile}, true
}

func memTotal(meminfo string) (int64, error) {
	for line := range strings.Lines(meminfo) {
		if value, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			value = strings.TrimSuffix(strings.TrimSpace(value), " kB")

			kib, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil || kib <= 0 || kib >= boundless>>10 {
				return 0, fmt.Errorf("MemTotal is %.40q", value)
			}

			return kib, nil
		}
	}

	return 0, errors.New("there is no MemTotal")
}
