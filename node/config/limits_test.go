package config

import "testing"

// A peer's default quotas follow from the node's memory. Quotas that an operator set hold.
//
// Requirement: FORM-009
func TestAPeersDefaultQuotasFollowFromTheMemory(t *testing.T) {
	set := defaultLimits()
	set.RecordsPerPeer, set.BytesPerPeer = 5_000_000, 0

	for _, c := range []struct {
		limits         Limits
		memory         int64
		records, bytes uint64
	}{
		{defaultLimits(), 0, 1_000_000, 4 << 30}, // no limit is known
		{defaultLimits(), 64 << 30, 1_000_000, 4 << 30},
		{defaultLimits(), 512 << 20, 32_768, 128 << 20},
		{defaultLimits(), 1 << 20, 1024, 4 << 20},
		{set, 512 << 20, 5_000_000, 0},
	} {
		records, bytes := c.limits.PeerQuotas(c.memory)
		if records != c.records || bytes != c.bytes {
			t.Errorf("with %d bytes: %d records, %d bytes; want %d, %d", c.memory, records, bytes, c.records, c.bytes)
		}
	}
}
