package memory

import (
	"strings"
	"testing"
	"testing/fstest"
)

// machine lays files out as a kernel does: of each path the content.
func machine(files map[string]string) fstest.MapFS {
	root := fstest.MapFS{}
	for name, content := range files {
		root[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Data: []byte(content)}
	}

	return root
}

// What the kernel's files look like on machines and in containers.
const (
	sixteenGiB = "MemTotal:       16777216 kB\nMemFree:         1234567 kB\n"
	unified    = "36 25 0:32 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 " +
		"rw,nsdelegate,memory_recursiveprot\n"
	rootMount = "25 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
	mebibyte  = 1 << 20
)

// Requirement: FORM-009
func TestTheLimitIsTheLowestThatTheKernelHasForTheProcess(t *testing.T) {
	for name, c := range map[string]struct {
		files  map[string]string
		bytes  int64 // before the share is taken
		source string
	}{
		"a service whose slice has less": {map[string]string{
			"/proc/self/cgroup": "0::/system.slice/roster.service\n", "/proc/self/mountinfo": rootMount + unified,
			"/sys/fs/cgroup/system.slice/roster.service/memory.max": "536870912\n",
			"/sys/fs/cgroup/system.slice/memory.max":                "268435456\n",
		}, 256 * mebibyte, "/sys/fs/cgroup/system.slice/memory.max"},
		"a service that is slowed down before it is killed": {map[string]string{
			"/proc/self/cgroup": "0::/system.slice/roster.service\n", "/proc/self/mountinfo": rootMount + unified,
			"/sys/fs/cgroup/system.slice/roster.service/memory.max":  "max\n",
			"/sys/fs/cgroup/system.slice/roster.service/memory.high": "104857600\n",
			"/sys/fs/cgroup/system.slice/memory.max":                 "max\n",
		}, 100 * mebibyte, "/sys/fs/cgroup/system.slice/roster.service/memory.high"},
		"a container with a name space of its own": {map[string]string{
			"/proc/self/cgroup": "0::/\n", "/proc/self/mountinfo": unified, "/sys/fs/cgroup/memory.max": "134217728\n",
		}, 128 * mebibyte, "/sys/fs/cgroup/memory.max"},
		"a container that sees its path on the host": {map[string]string{
			"/proc/self/cgroup": "0::/kubepods/burstable/pod1/c2\n",
			"/proc/self/mountinfo": "40 30 0:32 /kubepods/burstable/pod1/c2 /sys/fs/cgroup ro,nosuid - " +
				"cgroup2 cgroup rw\n",
			"/sys/fs/cgroup/memory.max": "134217728\n",
		}, 128 * mebibyte, "/sys/fs/cgroup/memory.max"},
		"a process outside of the name space of its mount": {map[string]string{
			"/proc/self/cgroup": "0::/../../system.slice/x\n", "/proc/self/mountinfo": unified,
			"/sys/fs/cgroup/memory.max": "134217728\n",
		}, 128 * mebibyte, "/sys/fs/cgroup/memory.max"},
		"version 1 on a machine": {map[string]string{
			"/proc/self/cgroup": "12:pids:/user.slice\n5:cpu,cpuacct:/\n4:memory:/group/inner\n" +
				"1:name=systemd:/user.slice\n0::/\n",
			"/proc/self/mountinfo": "30 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
				"31 25 0:29 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n",
			"/sys/fs/cgroup/memory/group/inner/memory.limit_in_bytes": "9223372036854771712\n",
			"/sys/fs/cgroup/memory/group/memory.limit_in_bytes":       "209715200\n",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes":             "9223372036854771712\n",
		}, 200 * mebibyte, "/sys/fs/cgroup/memory/group/memory.limit_in_bytes"},
		"version 1 in a container": {map[string]string{
			"/proc/self/cgroup": "9:memory:/docker/0123abcd\n",
			"/proc/self/mountinfo": "31 25 0:29 /docker/0123abcd /sys/fs/cgroup/memory ro " +
				"- cgroup cgroup rw,memory\n",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes": "67108864\n",
		}, 64 * mebibyte, "/sys/fs/cgroup/memory/memory.limit_in_bytes"},
		"both versions at once": {map[string]string{
			"/proc/self/cgroup": "4:memory:/a\n0::/b\n",
			"/proc/self/mountinfo": "31 25 0:29 / /sys/fs/cgroup/memory rw - cgroup " +
				"cgroup rw,memory\n32 25 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
			"/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "67108864\n",
		}, 64 * mebibyte, "/sys/fs/cgroup/memory/a/memory.limit_in_bytes"},
		"a mount whose path has a space": {map[string]string{
			"/proc/self/cgroup":           "0::/a\n",
			"/proc/self/mountinfo":        `36 25 0:32 / /mnt/my\040groups rw - cgroup2 none rw` + "\n",
			"/mnt/my groups/a/memory.max": "67108864\n",
		}, 64 * mebibyte, "/mnt/my groups/a/memory.max"},
	} {
		c.files["/proc/meminfo"] = sixteenGiB

		got, ok := Find(machine(c.files))
		if want := int64(shareOfCgroup * float64(c.bytes)); !ok || got.Bytes != want || got.Source != c.source {
			t.Errorf("%s: %+v (%v), want %d by %s", name, got, ok, want, c.source)
		}
	}
}

// Requirement: FORM-009
func TestWithoutACgroupsLimitItIsTheMachines(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"no cgroups": {},
		"no limit": {"/proc/self/cgroup": "0::/a\n", "/proc/self/mountinfo": unified,
			"/sys/fs/cgroup/a/memory.max": "max\n"},
		"a large one": {"/proc/self/cgroup": "0::/a\n", "/proc/self/mountinfo": unified,
			"/sys/fs/cgroup/a/memory.max": "1099511627776\n"},
		"none mounted": {
			"/proc/self/cgroup": "0::/a\n", "/proc/self/mountinfo": rootMount,
			"/sys/fs/cgroup/a/memory.max": "67108864\n",
		},
		"files that say nothing": {
			"/proc/self/cgroup": "0\n::\n0::/a\n", "/proc/self/mountinfo": "36 25\n - \n" + unified,
			"/sys/fs/cgroup/a/memory.max": "-5\n", "/sys/fs/cgroup/memory.max": "",
		},
	} {
		files["/proc/meminfo"] = sixteenGiB

		got, ok := Find(machine(files))
		if want := int64(.75 * (16 << 30)); !ok || got.Bytes != want || got.Source != "/proc/meminfo" {
			t.Errorf("%s: %+v (%v), want %d", name, got, ok, want)
		}
	}

	for _, meminfo := range []string{"", "MemTotal: many kB\n", "MemTotal: 0 kB\n", "MemFree: 1 kB\n"} {
		if got, ok := Find(machine(map[string]string{"/proc/meminfo": meminfo})); ok {
			t.Errorf("of a machine that says %q: %+v", meminfo, got)
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add("0::/a/b\n", unified, "134217728\n", sixteenGiB)
	f.Add("4:memory:/a\n", "31 25 0:29 /a / rw - cgroup cgroup rw,memory\n", "max\n", "")
	f.Fuzz(func(t *testing.T, membership, mounts, limit, meminfo string) {
		got, ok := Find(machine(map[string]string{
			membershipFile: membership, mountsFile: mounts, machineFile: meminfo,
			"sys/fs/cgroup/a/memory.max": limit, "sys/fs/cgroup/memory.high": limit, "memory.limit_in_bytes": limit,
		}))
		if ok && (got.Bytes < 0 || got.Source == "") {
			t.Errorf("found %+v", got)
		}
	})
}
