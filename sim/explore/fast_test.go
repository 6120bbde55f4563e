//go:build !race

package explore

const slow = 0
