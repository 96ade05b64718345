package synthetic

// Style sets how much samples of one class differ. Lengths are fractions of the image side, angles are degrees, shares
// are probabilities.
type Style struct {
	Scale    [2]float64 // minimal and maximal diameter of the figure
	Shift    float64    // maximal distance of the figure's centre from the image's centre, as a share of the free space
	Rotate   float64    // maximal rotation in both directions
	Stretch  float64    // maximal unequal scaling and shear
	Warp     float64    // smooth deformation of the outline, in units of the figure's radius
	Textured float64    // share of figures filled with a texture
	Clutter  int        // maximal number of small distractors
	Contrast int32      // minimal difference between figure and background, 0 to about 200
	Grain    int32      // pixel noise, 0 to 255, in domains with noise
	Occlude  float64    // probability that a distractor may cover the figure
}

// Level interpolates between an easy style at 0 and a hard one at 1; other values are clamped. Level(0.5) is Default.
func Level(difficulty float64) Style {
	d := min(1, max(0, difficulty))
	at := func(easy, hard float64) float64 { return easy + float64(d*(hard-easy)) }
	return Style{
		Scale:    [2]float64{at(0.7, 0.4), at(0.85, 0.9)},
		Shift:    at(0.3, 1),
		Rotate:   at(8, 42),
		Stretch:  at(0.05, 0.35),
		Warp:     at(0.02, 0.12),
		Textured: at(0.15, 0.65),
		Clutter:  int(at(0, 6) + 0.5),
		Contrast: int32(at(90, 40)),
		Grain:    int32(at(6, 40)),
		Occlude:  at(0, 0.5),
	}
}

// Default returns the style of Draw.
func Default() Style { return Level(0.5) }
