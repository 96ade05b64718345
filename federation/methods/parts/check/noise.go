package check

import "errors"

// checkNoise refuses options of clipping and noise that make no sense.
func Noise(clip, noise, delta float64) error {
	err := Join(Within("clip", clip, 0, MaxWeight), Within("noise", noise, 0, 1e6), Within("delta", delta, 1e-15, 0.5))
	if noise > 0 && clip == 0 {
		err = Join(err, errors.New("option clip is 0; noise hides only what is clipped: set a clip, or set noise: 0"))
	}
	return err
}
