#include "notice.hpp"

#include <iostream>

namespace mrcfa {

void notice(const std::string& sentence) {
  std::cerr << "mrcfa: " + sentence + "\n";  // in one piece, whatever other threads write
}

}  // namespace mrcfa
