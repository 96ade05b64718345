package method

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"promptfed/runtime/tensor"
)

func shared(u Upload) tensor.Map { return u.Shared }

func upload(client, n int, values ...float32) Upload {
	return Upload{Client: client, N: n, Shared: tensor.Map{"ctx": tensor.Of(values, len(values))}}
}

func TestMeanWeighsByExamples(t *testing.T) {
	// (1·2 + 3·6)/4 and (1·-4 + 3·0)/4.
	got := Mean([]Upload{upload(0, 1, 2, -4), upload(1, 3, 6, 0)}, shared)["ctx"]
	if got.Data[0] != 5 || got.Data[1] != -1 {
		t.Errorf("mean %v", got.Data)
	}
	if len(Mean(nil, shared)) != 0 {
		t.Error("the mean of nothing holds something")
	}
}

// In float32, 2^24 + 1 is 2^24, so a sum in float32 would lose all but the first term.
func TestMeanSumsInFloat64(t *testing.T) {
	ups := []Upload{upload(0, 1, 1<<24)}
	for i := range 255 {
		ups = append(ups, upload(i+1, 1, 1))
	}
	want := float32((float64(1<<24) + 255) / 256)
	if got := Mean(ups, shared)["ctx"].Data[0]; got != want {
		t.Errorf("mean %v, want %v", got, want)
	}
}

func TestMeanDoesNotDependOnMapsAndChangesNothing(t *testing.T) {
	var ups []Upload
	for client := range 7 {
		m := tensor.Map{}
		for k := range 20 {
			m[fmt.Sprint("p", k)] = Draw(uint64(k), client, "x", []int{5}, 1)
		}
		ups = append(ups, Upload{Client: client, N: client + 1, Shared: m})
	}
	kept := ups[0].Shared.Clone()
	first := Mean(ups, shared)
	for range 20 {
		for name, v := range Mean(ups, shared) {
			for i, x := range v.Data {
				if math.Float32bits(x) != math.Float32bits(first[name].Data[i]) {
					t.Fatalf("%s changed from call to call", name)
				}
			}
		}
	}
	first.Scale(0)
	for name, v := range ups[0].Shared {
		if !slices.Equal(v.Data, kept[name].Data) {
			t.Errorf("%s of an upload changed", name)
		}
	}
}

func TestRandDependsOnSeedAndPathOnly(t *testing.T) {
	seen := map[uint64]string{}
	for _, seed := range []uint64{0, 1, 1 << 40} {
		for _, path := range [][]string{nil, {"a"}, {"a", "b"}, {"b", "a"}, {"round", "1", "client", "12"},
			{"round", "11", "client", "2"}} {
			v := Rand(seed, path...).Uint64()
			if v != Rand(seed, path...).Uint64() {
				t.Errorf("%d %v differs from itself", seed, path)
			}
			at := fmt.Sprint(seed, path)
			if other, ok := seen[v]; ok {
				t.Errorf("%s and %s draw the same", at, other)
			}
			seen[v] = at
		}
	}
}

func TestDraws(t *testing.T) {
	const n, std = 20000, 0.02
	v := Draw(3, 1, "ctx", []int{n}, std)
	mean, square := 0.0, 0.0
	for _, x := range v.Data {
		mean += float64(x) / n
		square += float64(x) * float64(x) / n
	}
	// Five standard errors of the mean and of the variance of n normal numbers.
	if math.Abs(mean) > 5*std/math.Sqrt(n) || math.Abs(square-std*std) > 5*std*std*math.Sqrt(2./n) {
		t.Errorf("mean %g, standard deviation %g", mean, math.Sqrt(square))
	}
	if Draw(3, 2, "ctx", []int{1}, std).Data[0] == v.Data[0] || Draw(3, 1, "local", []int{1},
		std).Data[0] == v.Data[0] {
		t.Error("another client or another name draws the same")
	}
	if Draw(3, 1, "ctx", []int{4}, 0).MaxAbs() != 0 {
		t.Error("a standard deviation of 0 draws something")
	}
	u := DrawUniform(3, "w", []int{16, 500}) // within 1/√16
	if m := u.MaxAbs(); m > 0.25 || m < 0.249 {
		t.Errorf("largest %g of 8000 numbers within 0.25", m)
	}
}
