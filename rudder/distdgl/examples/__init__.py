"""Complete DistDGL training scripts: a plain one, and the same with Rudder's loader."""
